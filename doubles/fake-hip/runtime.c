/* Devices, streams, events, graphs, copies and kernels. Nothing is computed. */
#define _GNU_SOURCE
#include "hip.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

extern int captures_under_way;

/* Work that was submitted, and work that somebody has waited for; see `lazy`. */
static unsigned long submitted, finished;
struct stream {
    int capturing;
};
static struct stream null_stream;
enum { KERNEL_COPY_TO_HOST = 2 };

#define OK(name, ...) EXPORT int name(__VA_ARGS__) { return called(#name); }

EXPORT int hipInit(unsigned flags) {
    return called("hipInit");
}

EXPORT int hipGetDeviceCount(int *cards) {
    int code = called("hipGetDeviceCount");
    if (code) return code;
    *cards = settings.cards;
    return settings.cards ? SUCCESS : fail(NO_DEVICE);
}

EXPORT int hipGetDevice(int *device) {
    *device = current;
    return called("hipGetDevice");
}

EXPORT int hipSetDevice(int device) {
    int code = called("hipSetDevice");
    if (code) return code;
    if (device < 0 || device >= settings.cards) return fail(INVALID_DEVICE);
    current = device;
    return SUCCESS;
}

OK(hipCtxSetCurrent, void *context)
EXPORT int hipDevicePrimaryCtxRetain(void **context, int device) {
    *context = &null_stream;
    return called("hipDevicePrimaryCtxRetain");
}

EXPORT int hipDeviceGetUuid(char uuid[16], int device) {
    char text[32];
    called("hipDeviceGetUuid");
    if (device < 0 || device >= settings.cards) return fail(INVALID_DEVICE);
    /* The runtime writes a card's unique_id as hexadecimal digits. */
    snprintf(text, sizeof text, "a0000000000000%02x", device + 1);
    memcpy(uuid, text, 16);
    return SUCCESS;
}

EXPORT int hipDeviceTotalMem(size_t *total, int device) {
    int code = called("hipDeviceTotalMem");
    if (code) return code;
    if (device < 0 || device >= settings.cards) return fail(INVALID_DEVICE);
    *total = settings.total[device];
    return SUCCESS;
}

EXPORT int hipDeviceGetAttribute(int *value, int attribute, int device) {
    called("hipDeviceGetAttribute");
    if (device < 0 || device >= settings.cards) return fail(INVALID_DEVICE);
    switch (attribute) {
    case 9: *value = settings.managed; break;  /* hipDeviceAttributeConcurrentManagedAccess */
    case 10: *value = 1; break;                /* hipDeviceAttributeCooperativeLaunch */
    case 88: *value = settings.pools; break;   /* hipDeviceAttributeMemoryPoolsSupported */
    case 89: *value = settings.vmm; break;     /* hipDeviceAttributeVirtualMemoryManagementSupported */
    default: *value = 0;
    }
    return SUCCESS;
}

EXPORT int hipDeviceGetPCIBusId(char *text, int room, int device) {
    called("hipDeviceGetPCIBusId");
    snprintf(text, room, "0000:%02x:00.0", device + 3);
    return SUCCESS;
}

/* The structure of ROCm 6 and 7. */
EXPORT int hipGetDevicePropertiesR0600(char *place, int device) {
    called("hipGetDevicePropertiesR0600");
    if (device < 0 || device >= settings.cards) return fail(INVALID_DEVICE);
    int wide = !strncmp(settings.arch, "gfx9", 4);
    memset(place, 0, 1472);
    snprintf(place, 256, "Fake Radeon %d", device);
    *(size_t *)(place + 288) = settings.total[device];
    *(size_t *)(place + 296) = 65536; /* sharedMemPerBlock */
    *(int *)(place + 308) = wide ? 64 : 32;
    *(int *)(place + 320) = 1024; /* maxThreadsPerBlock */
    *(int *)(place + 360) = 11;
    *(int *)(place + 388) = 48;       /* multiProcessorCount */
    *(size_t *)(place + 696) = 65536; /* sharedMemPerBlockOptin */
    snprintf(place + 1160, 256, "%s", settings.arch);
    return SUCCESS;
}

/* The structure of ROCm 5 begins with the name and the size. */
EXPORT int hipGetDevicePropertiesR0000(char *place, int device) {
    called("hipGetDevicePropertiesR0000");
    if (device < 0 || device >= settings.cards) return fail(INVALID_DEVICE);
    snprintf(place, 256, "Fake Radeon %d", device);
    *(size_t *)(place + 256) = settings.total[device];
    return SUCCESS;
}

EXPORT int hipGetDeviceProperties(char *place, int device) {
    return hipGetDevicePropertiesR0000(place, device);
}

EXPORT int hipGetProcAddress(const char *name, void **function, int version, uint64_t flags, int *status) {
    called("hipGetProcAddress");
    Dl_info own;
    dladdr(&captures_under_way, &own);
    void *library = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    *function = library ? dlsym(library, name) : 0;
    if (status) *status = !*function;
    return *function ? SUCCESS : fail(NOT_FOUND);
}

EXPORT const char *hipGetErrorString(int code) {
    return code == SUCCESS ? "no error" : code == OUT_OF_MEMORY ? "out of memory" : "an error of the stand-in";
}

static int wait(const char *name) {
    ENTER(name);
    finished = submitted;
    return SUCCESS;
}

EXPORT int hipDeviceSynchronize(void) { return wait("hipDeviceSynchronize"); }
EXPORT int hipStreamSynchronize(struct stream *stream) { return wait("hipStreamSynchronize"); }
EXPORT int hipEventSynchronize(unsigned long *event) { return wait("hipEventSynchronize"); }

static int make(void **place) {
    *place = calloc(1, sizeof(struct stream) + sizeof(unsigned long));
    return *place ? SUCCESS : fail(OUT_OF_MEMORY);
}

EXPORT int hipStreamCreate(void **stream) { return called("hipStreamCreate"), make(stream); }
EXPORT int hipStreamCreateWithFlags(void **stream, unsigned flags) { return called("hipStreamCreateWithFlags"), make(stream); }
EXPORT int hipStreamCreateWithPriority(void **stream, unsigned flags, int priority) { return called("hipStreamCreateWithPriority"), make(stream); }
EXPORT int hipStreamDestroy(void *stream) { return free(stream), called("hipStreamDestroy"); }
OK(hipStreamWaitEvent, void *stream, void *event, unsigned flags)

EXPORT int hipEventCreate(void **event) { return called("hipEventCreate"), make(event); }
EXPORT int hipEventCreateWithFlags(void **event, unsigned flags) { return called("hipEventCreateWithFlags"), make(event); }
EXPORT int hipEventDestroy(void *event) { return free(event), called("hipEventDestroy"); }
EXPORT int hipEventRecord(unsigned long *event, void *stream) {
    *event = ++submitted;
    return called("hipEventRecord");
}
EXPORT int hipEventQuery(unsigned long *event) {
    called("hipEventQuery");
    return settings.lazy && *event > finished ? fail(NOT_READY) : SUCCESS;
}

EXPORT int hipStreamBeginCapture(struct stream *stream, int mode) {
    called("hipStreamBeginCapture");
    (stream ? stream : &null_stream)->capturing = 1;
    __atomic_add_fetch(&captures_under_way, 1, __ATOMIC_ACQ_REL);
    return SUCCESS;
}
EXPORT int hipStreamEndCapture(struct stream *stream, void **graph) {
    called("hipStreamEndCapture");
    (stream ? stream : &null_stream)->capturing = 0;
    __atomic_sub_fetch(&captures_under_way, 1, __ATOMIC_ACQ_REL);
    return make(graph);
}
EXPORT int hipStreamIsCapturing(struct stream *stream, int *status) {
    *status = (stream ? stream : &null_stream)->capturing;
    return SUCCESS;
}
EXPORT int hipGraphInstantiate(void **exec, void *graph, void *node, char *text, size_t size) { return called("hipGraphInstantiate"), make(exec); }
EXPORT int hipGraphDestroy(void *graph) { return free(graph), called("hipGraphDestroy"); }
EXPORT int hipGraphExecDestroy(void *exec) { return free(exec), called("hipGraphExecDestroy"); }
OK(hipGraphLaunch, void *exec, void *stream)
OK(hipGraphExecUpdate, void *exec, void *graph, void *node, void *outcome)

/* What an engine copies to weights and caches would take the host's memory; what guard tries a card with is small. */
static int done(size_t bytes) {
    return settings.data || bytes <= 65536;
}

EXPORT int hipMemset(void *at, int value, size_t bytes) {
    if (done(bytes)) memset(at, value, bytes);
    return called("hipMemset");
}
EXPORT int hipMemsetAsync(void *at, int value, size_t bytes, void *stream) { return hipMemset(at, value, bytes); }
EXPORT int hipMemsetD8Async(void *at, unsigned char value, size_t bytes, void *stream) { return hipMemset(at, value, bytes); }
EXPORT int hipMemsetD8(void *at, unsigned char value, size_t bytes) { return hipMemset(at, value, bytes); }
EXPORT int hipMemcpy(void *to, const void *from, size_t bytes, int kind) {
    if (done(bytes)) memcpy(to, from, bytes);
    /* What an engine reads of a card that computes nothing. */
    else if (kind == KERNEL_COPY_TO_HOST) memset(to, 0, bytes);
    return called("hipMemcpy");
}
EXPORT int hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) { return hipMemcpy(to, from, bytes, kind); }
EXPORT int hipMemcpyDtoH(void *to, const void *from, size_t bytes) { return hipMemcpy(to, from, bytes, KERNEL_COPY_TO_HOST); }
EXPORT int hipMemcpyDtoHAsync(void *to, const void *from, size_t bytes, void *stream) { return hipMemcpy(to, from, bytes, KERNEL_COPY_TO_HOST); }
OK(hipMemcpy2DAsync, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind, void *stream)
OK(hipMemcpyPeerAsync, void *to, int to_device, const void *from, int from_device, size_t bytes, void *stream)

EXPORT int hipDeviceCanAccessPeer(int *can, int device, int peer) { return *can = 0, called("hipDeviceCanAccessPeer"); }
OK(hipDeviceEnablePeerAccess, int device, unsigned flags)
OK(hipDeviceDisablePeerAccess, int device)
OK(hipFuncSetAttribute, const void *function, int attribute, int value)
EXPORT int hipOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t shared) {
    *blocks = 2;
    return called("hipOccupancyMaxActiveBlocksPerMultiprocessor");
}
typedef struct { unsigned x, y, z; } dim3;
OK(hipLaunchKernel, const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, void *stream)
OK(hipLaunchCooperativeKernel, const void *function, dim3 grid, dim3 block, void **arguments, unsigned shared, void *stream)
EXPORT int __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) { return SUCCESS; }
EXPORT int __hipPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void **stream) {
    *grid = *block = (dim3){1, 1, 1};
    *shared = 0;
    *stream = 0;
    return SUCCESS;
}
EXPORT void **__hipRegisterFatBinary(const void *binary) {
    static void *handle[4];
    return handle;
}
EXPORT void __hipRegisterFunction(void **binary, const void *host, char *device, const char *name, unsigned limit, void *a, void *b, void *c, void *d, int *e) {}
EXPORT void __hipRegisterVar(void **binary, void *host, char *device, const char *name, int a, size_t size, int b, int c) {}
EXPORT void __hipUnregisterFatBinary(void **binary) {}

/* hipBLAS and rocBLAS, for a library that is found under their names too. */
EXPORT int hipblasCreate(void **handle) { return make(handle); }
EXPORT int hipblasDestroy(void *handle) { return free(handle), SUCCESS; }
#define BLAS(name) EXPORT int name() { return SUCCESS; }
BLAS(hipblasSetStream) BLAS(hipblasGemmEx) BLAS(hipblasGemmBatchedEx) BLAS(hipblasGemmStridedBatchedEx) BLAS(hipblasSgemm)
BLAS(hipblasSgemmBatched) BLAS(hipblasSgemmStridedBatched) BLAS(hipblasStrsmBatched)
EXPORT void rocblas_initialize(void) {}
EXPORT int rocblas_get_version_string_size(size_t *size) { return *size = 2, SUCCESS; }
EXPORT int rocblas_get_version_string(char *text, size_t room) { return snprintf(text, room, "4"), SUCCESS; }
