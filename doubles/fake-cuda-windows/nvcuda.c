/* Stand-in of CUDA's driver on Windows: one card whose memory is addresses without storage. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

#define API __declspec(dllexport) int
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, NOT_FOUND = 500 };
enum { BLOCKS = 1 << 16, GRANULE = 2 << 20, ATTRIBUTE_VMM = 102 };

typedef unsigned long long u64;

static struct block {
    u64 at, bytes;
    int is_chunk;
} blocks[BLOCKS];
static int last;
static u64 total = 12288ull << 20, used, next_chunk = 1;
static int context, has_context;
static CRITICAL_SECTION lock;
static FILE *record;

BOOL WINAPI DllMain(HINSTANCE self, DWORD reason, void *reserved) {
    (void)self, (void)reserved;
    if (reason != DLL_PROCESS_ATTACH) return TRUE;
    InitializeCriticalSection(&lock);
    const char *file = getenv("FAKE_CUDA_LOG"), *mib = getenv("FAKE_CUDA_MIB");
    if (file) record = fopen(file, "a");
    if (mib) total = strtoull(mib, 0, 10) << 20;
    return TRUE;
}

static void note(const char *what, u64 bytes) {
    if (!record) return;
    fprintf(record, "%s %llu used %llu\n", what, bytes, used);
    fflush(record);
}

/* Counts a block; its address, or 0 where the card has too little. */
static u64 take(u64 at, u64 bytes, int is_chunk) {
    EnterCriticalSection(&lock);
    int fits = at && last < BLOCKS && used + bytes <= total;
    if (fits) {
        blocks[last++] = (struct block){at, bytes, is_chunk};
        used += bytes;
    }
    note(fits ? "alloc" : "refuse", bytes);
    LeaveCriticalSection(&lock);
    return fits ? at : 0;
}

static int give(u64 at, int is_chunk) {
    int code = INVALID_VALUE;
    EnterCriticalSection(&lock);
    for (int i = last - 1; i >= 0 && code; i--)
        if (blocks[i].at == at && blocks[i].is_chunk == is_chunk) {
            used -= blocks[i].bytes;
            note("free", blocks[i].bytes);
            blocks[i] = blocks[--last];
            code = SUCCESS;
        }
    LeaveCriticalSection(&lock);
    return code;
}

static u64 addresses(u64 bytes) { return (u64)VirtualAlloc(0, bytes ? bytes : 1, MEM_RESERVE, PAGE_NOACCESS); }

API cuInit(unsigned flags) { return (void)flags, SUCCESS; }
API cuDriverGetVersion(int *version) { return *version = 12040, SUCCESS; }
API cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }
API cuDeviceGet(int *device, int ordinal) { return *device = ordinal, ordinal ? 101 : SUCCESS; }
API cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    for (int i = 0; i < 16; i++) uuid[i] = (unsigned char)(0x11 * i + device);
    return SUCCESS;
}
API cuDeviceTotalMem_v2(size_t *bytes, int device) { return (void)device, *bytes = total, SUCCESS; }
API cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == ATTRIBUTE_VMM ? !getenv("FAKE_CUDA_NO_VMM") : 1;
    return SUCCESS;
}
API cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    return (void)device, *flags = 0, *active = has_context, SUCCESS;
}
/* The runtime creates the context by this. */
API cuDevicePrimaryCtxRetain(void **made, int device) { return (void)device, *made = &context, has_context = 1, SUCCESS; }
API cuCtxGetCurrent(void **current) { return *current = has_context ? &context : 0, SUCCESS; }
API cuCtxGetDevice(int *device) { return *device = 0, has_context ? SUCCESS : INVALID_CONTEXT; }
API cuCtxSynchronize(void) { return SUCCESS; }
API cuGetErrorString(int code, const char **text) {
    return *text = code == OUT_OF_MEMORY ? "out of memory" : "error of the stand-in", SUCCESS;
}

API cuMemAlloc_v2(u64 *at, size_t bytes) {
    has_context = 1;
    u64 place = addresses(bytes);
    *at = take(place, bytes, 0);
    if (!*at) VirtualFree((void *)place, 0, MEM_RELEASE);
    return *at ? SUCCESS : OUT_OF_MEMORY;
}
API cuMemFree_v2(u64 at) {
    if (!at) return SUCCESS;
    int code = give(at, 0);
    if (!code) VirtualFree((void *)at, 0, MEM_RELEASE);
    return code;
}
API cuMemGetInfo_v2(size_t *free_bytes, size_t *bytes) { return *free_bytes = total - used, *bytes = total, SUCCESS; }

API cuMemGetAllocationGranularity(size_t *bytes, const void *asked, int option) {
    return (void)asked, (void)option, *bytes = GRANULE, SUCCESS;
}
API cuMemAddressReserve(u64 *at, size_t bytes, size_t alignment, u64 wanted, u64 flags) {
    (void)alignment, (void)wanted, (void)flags;
    return (*at = addresses(bytes)) ? SUCCESS : OUT_OF_MEMORY;
}
API cuMemAddressFree(u64 at, size_t bytes) { return (void)bytes, VirtualFree((void *)at, 0, MEM_RELEASE), SUCCESS; }
API cuMemCreate(u64 *chunk, size_t bytes, const void *asked, u64 flags) {
    (void)asked, (void)flags;
    return (*chunk = take(next_chunk++, bytes, 1)) ? SUCCESS : OUT_OF_MEMORY;
}
/* A chunk is mapped once here, so its memory goes with the mapping; `mapped` finds it. */
static struct {
    u64 at, chunk;
} mapped[BLOCKS];
static int last_mapped;
API cuMemRelease(u64 chunk) { return (void)chunk, SUCCESS; }
API cuMemMap(u64 at, size_t bytes, size_t offset, u64 chunk, u64 flags) {
    (void)bytes, (void)offset, (void)flags;
    mapped[last_mapped].at = at, mapped[last_mapped++].chunk = chunk;
    return SUCCESS;
}
API cuMemUnmap(u64 at, size_t bytes) {
    for (int i = last_mapped - 1; i >= 0; i--)
        if (mapped[i].at >= at && mapped[i].at < at + bytes) {
            give(mapped[i].chunk, 1);
            mapped[i] = mapped[--last_mapped];
        }
    return SUCCESS;
}
API cuMemSetAccess(u64 at, size_t bytes, const void *access, size_t count) {
    return (void)at, (void)bytes, (void)access, (void)count, SUCCESS;
}

/* Work is done at once, so a stream and an event are only different handles. */
static int handle(void **place) { return (*place = malloc(8)) ? SUCCESS : OUT_OF_MEMORY; }
API cuStreamCreate(void **stream, unsigned flags) { return (void)flags, handle(stream); }
API cuStreamDestroy_v2(void *stream) { return free(stream), SUCCESS; }
API cuEventCreate(void **event, unsigned flags) { return (void)flags, handle(event); }
API cuEventDestroy_v2(void *event) { return free(event), SUCCESS; }
API cuEventRecord(void *event, void *stream) { return (void)event, (void)stream, SUCCESS; }
API cuEventQuery(void *event) { return (void)event, SUCCESS; }
API cuStreamBeginCapture_v2(void *stream, int mode) { return (void)stream, (void)mode, SUCCESS; }
API cuStreamEndCapture(void *stream, void **graph) { return (void)stream, handle(graph); }
API cuGraphInstantiateWithFlags(void **exec, void *graph, u64 flags) { return (void)graph, (void)flags, handle(exec); }
API cuGraphDestroy(void *graph) { return free(graph), SUCCESS; }
API cuGraphExecDestroy(void *exec) { return free(exec), SUCCESS; }

API cuGetProcAddress_v2(const char *name, void **function, int version, u64 flags, int *status) {
    (void)version, (void)flags;
    char newer[128];
    HMODULE self = GetModuleHandleA("nvcuda.dll");
    snprintf(newer, sizeof newer, "%s_v2", name);
    *function = (void *)GetProcAddress(self, newer);
    if (!*function) *function = (void *)GetProcAddress(self, name);
    if (status) *status = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}
