/* Stand-in of CUDA 12's runtime library on Windows, as far as ggml imports it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

#define API __declspec(dllexport) int
enum { SUCCESS = 0, OUT_OF_MEMORY = 2, CAPABILITY = 86, PROCESSORS = 28 };
/* cudaDevAttrMultiProcessorCount, cudaDevAttrComputeCapabilityMajor and Minor. */
enum { ATTRIBUTE_PROCESSORS = 16, ATTRIBUTE_MAJOR = 75, ATTRIBUTE_MINOR = 76 };

typedef unsigned long long u64;
typedef struct {
    unsigned x, y, z;
} size3;

/* The driver's functions, found as NVIDIA's runtime finds them. */
static int (*find)(const char *, void **, int, u64, int *);
static void *driver(const char *name) {
    void *function = 0;
    if (!find) find = (void *)GetProcAddress(LoadLibraryA("nvcuda.dll"), "cuGetProcAddress_v2");
    if (find) find(name, &function, 12040, 0, 0);
    return function;
}
#define DRIVER(name, ...)                                    \
    static int (*name)(__VA_ARGS__);                         \
    if (!name) name = (int (*)(__VA_ARGS__))driver(#name)

static void begin(void) {
    void *context;
    DRIVER(cuDevicePrimaryCtxRetain, void **, int);
    cuDevicePrimaryCtxRetain(&context, 0);
}

API cudaMalloc(u64 *at, size_t bytes) {
    begin();
    DRIVER(cuMemAlloc, u64 *, size_t);
    return cuMemAlloc(at, bytes);
}
API cudaFree(u64 at) {
    begin();
    DRIVER(cuMemFree, u64);
    return cuMemFree(at);
}
API cudaMemGetInfo(size_t *free_bytes, size_t *bytes) {
    begin();
    DRIVER(cuMemGetInfo, size_t *, size_t *);
    return cuMemGetInfo(free_bytes, bytes);
}
API cudaStreamCreateWithFlags(void **stream, unsigned flags) {
    begin();
    DRIVER(cuStreamCreate, void **, unsigned);
    return cuStreamCreate(stream, flags);
}
API cudaStreamDestroy(void *stream) {
    DRIVER(cuStreamDestroy, void *);
    return cuStreamDestroy(stream);
}
API cudaStreamBeginCapture(void *stream, int mode) {
    DRIVER(cuStreamBeginCapture, void *, int);
    return cuStreamBeginCapture(stream, mode);
}
API cudaStreamEndCapture(void *stream, void **graph) {
    DRIVER(cuStreamEndCapture, void *, void **);
    return cuStreamEndCapture(stream, graph);
}

/* Pinned memory begins at a page, which ggml expects. */
static int host(void **at, size_t bytes) {
    *at = VirtualAlloc(0, bytes ? bytes : 1, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
    return *at ? SUCCESS : OUT_OF_MEMORY;
}
API cudaMallocHost(void **at, size_t bytes) { return host(at, bytes); }
API cudaHostAlloc(void **at, size_t bytes, unsigned flags) { return (void)flags, host(at, bytes); }
API cudaMallocManaged(void **at, size_t bytes, unsigned flags) { return (void)flags, host(at, bytes); }
API cudaFreeHost(void *at) { return VirtualFree(at, 0, MEM_RELEASE), SUCCESS; }
API cudaHostGetDevicePointer(void **device, void *at, unsigned flags) { return (void)flags, *device = at, SUCCESS; }

static int handle(void **place) { return (*place = malloc(8)) ? SUCCESS : OUT_OF_MEMORY; }
API cudaEventCreateWithFlags(void **event, unsigned flags) { return (void)flags, handle(event); }
API cudaEventDestroy(void *event) { return free(event), SUCCESS; }
API cudaGraphInstantiate(void **exec, void *graph, u64 flags) { return (void)graph, (void)flags, handle(exec); }

API cudaGetDeviceCount(int *count) { return *count = 1, SUCCESS; }
API cudaGetDevice(int *device) { return *device = 0, SUCCESS; }
API cudaDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == ATTRIBUTE_MAJOR        ? CAPABILITY / 10
             : attribute == ATTRIBUTE_MINOR      ? CAPABILITY % 10
             : attribute == ATTRIBUTE_PROCESSORS ? PROCESSORS
                                                 : 1;
    return SUCCESS;
}
API cudaDeviceGetPCIBusId(char *text, int length, int device) {
    return (void)device, snprintf(text, (size_t)length, "0000:01:00.0"), SUCCESS;
}
API cudaDeviceCanAccessPeer(int *can, int device, int peer) { return (void)device, (void)peer, *can = 0, SUCCESS; }

/* Offsets of members of cudaDeviceProp (driver_types.h @ 12.9), which has 1032 bytes. */
API cudaGetDeviceProperties_v2(char *properties, int device) {
    (void)device;
    const struct {
        int at, value;
    } numbers[] = {{304, 65536}, {308, 32},         {320, 1024},       {336, 2147483647}, {340, 65535},        {344, 65535},
                   {360, CAPABILITY / 10}, {364, CAPABILITY % 10}, {388, PROCESSORS}};
    size_t free_bytes, total;
    memset(properties, 0, 1032);
    strcpy(properties, "stand-in of an RTX 3060");
    cudaMemGetInfo(&free_bytes, &total);
    memcpy(properties + 288, &total, 8);
    *(u64 *)(properties + 296) = 49152;
    *(u64 *)(properties + 640) = 102400;
    *(u64 *)(properties + 696) = 101376;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) memcpy(properties + numbers[i].at, &numbers[i].value, 4);
    return SUCCESS;
}

/* cudaFuncAttributes: three sizes, then most threads, registers and the versions of the code. */
API cudaFuncGetAttributes(char *attributes, const void *function) {
    (void)function;
    const int numbers[] = {1024, 128, CAPABILITY, CAPABILITY};
    memset(attributes, 0, 64);
    memcpy(attributes + 24, numbers, sizeof numbers);
    return SUCCESS;
}
API cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int size, size_t shared, unsigned flags) {
    return (void)function, (void)size, (void)shared, (void)flags, *blocks = 2, SUCCESS;
}
API cudaStreamIsCapturing(void *stream, int *status) { return (void)stream, *status = 0, SUCCESS; }
API __cudaPopCallConfiguration(size3 *grid, size3 *block, size_t *shared, void **stream) {
    *grid = *block = (size3){1, 1, 1};
    return *shared = 0, *stream = 0, SUCCESS;
}
__declspec(dllexport) void **__cudaRegisterFatBinary(void *code) {
    static void *registered;
    return (void)code, &registered;
}
__declspec(dllexport) const char *cudaGetErrorString(int code) {
    return code == OUT_OF_MEMORY ? "out of memory" : "error of the stand-in";
}

/* What answers with success and does nothing. */
#define DONE(name) \
    API name(void) { return SUCCESS; }
DONE(__cudaPushCallConfiguration) DONE(__cudaRegisterFatBinaryEnd) DONE(__cudaRegisterFunction) DONE(__cudaRegisterVar)
DONE(__cudaUnregisterFatBinary) DONE(cudaDeviceDisablePeerAccess) DONE(cudaDeviceEnablePeerAccess) DONE(cudaDeviceSynchronize)
DONE(cudaEventRecord) DONE(cudaEventSynchronize) DONE(cudaFuncSetAttribute) DONE(cudaGetLastError) DONE(cudaGraphDestroy)
DONE(cudaGraphExecDestroy) DONE(cudaGraphExecUpdate) DONE(cudaGraphLaunch) DONE(cudaHostRegister) DONE(cudaHostUnregister)
DONE(cudaLaunchCooperativeKernel) DONE(cudaLaunchKernel) DONE(cudaLaunchKernelExC) DONE(cudaMemcpy2DAsync)
DONE(cudaMemcpy3DPeerAsync) DONE(cudaMemcpyAsync) DONE(cudaMemcpyPeerAsync) DONE(cudaMemset) DONE(cudaMemsetAsync)
DONE(cudaPeekAtLastError) DONE(cudaSetDevice) DONE(cudaSetDeviceFlags) DONE(cudaStreamSynchronize) DONE(cudaStreamWaitEvent)
