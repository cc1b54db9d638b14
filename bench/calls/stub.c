/* A driver that does nothing, in the fewest instructions: what guard adds to a call is then all that there is to count. */
#include <stdint.h>
#include <string.h>

#define NOTHING(name) int name(void) { return 0; }
#define GIVES(name) int name(void **made) { *made = (void *)0x1000; return 0; }
NOTHING(cuInit)
NOTHING(cuCtxSetCurrent)
NOTHING(cuMemFree_v2)
NOTHING(cuMemRelease)
NOTHING(cuMemcpyHtoDAsync_v2)
NOTHING(cuMemcpyDtoDAsync_v2)
NOTHING(cuMemcpyAsync)
NOTHING(cuMemsetD8Async)
NOTHING(cuStreamSynchronize)
NOTHING(cuLaunchKernel)
NOTHING(cuStreamBeginCapture_v2)
NOTHING(cuGraphLaunch)
NOTHING(cuThreadExchangeStreamCaptureMode)
GIVES(cuDevicePrimaryCtxRetain)
GIVES(cuStreamCreate)
GIVES(cuModuleLoadData)
GIVES(cuModuleGetFunction)
GIVES(cuGraphInstantiateWithFlags)
GIVES(cuCtxGetCurrent)
int cuStreamEndCapture(void *stream, void **graph) { (void)stream; *graph = (void *)0x2000; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { (void)attribute, (void)device; *value = 1; return 0; }
int cuDeviceGetUuid_v2(char *uuid, int device) { (void)device; memset(uuid, 1, 16); return 0; }
int cuDeviceTotalMem_v2(size_t *total, int device) { (void)device; *total = (size_t)80 << 30; return 0; }
int cuMemGetInfo_v2(size_t *left, size_t *total) { *left = *total = (size_t)80 << 30; return 0; }
int cuPointerGetAttribute(void *value, int attribute, uint64_t at) { (void)attribute, (void)at; *(unsigned *)value = 2; return 0; }
int cuMemAlloc_v2(uint64_t *at, size_t size) {
    static uint64_t next = 0x10000000;
    *at = next;
    next += (size + 511) & ~(size_t)511;
    return 0;
}
int cuMemCreate(uint64_t *handle) {
    static uint64_t next = 1;
    *handle = next++;
    return 0;
}

/* Bound to the functions above (-Bsymbolic), whoever stands before them. */
int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status) {
    (void)version, (void)flags;
    *found = NULL;
#define ROW(other, function) \
    if (!strcmp(name, other)) *found = (void *)function;
    ROW("cuInit", cuInit)
    ROW("cuCtxSetCurrent", cuCtxSetCurrent)
    ROW("cuMemFree", cuMemFree_v2)
    ROW("cuMemRelease", cuMemRelease)
    ROW("cuMemcpyHtoDAsync", cuMemcpyHtoDAsync_v2)
    ROW("cuMemcpyDtoDAsync", cuMemcpyDtoDAsync_v2)
    ROW("cuMemcpyAsync", cuMemcpyAsync)
    ROW("cuMemsetD8Async", cuMemsetD8Async)
    ROW("cuStreamSynchronize", cuStreamSynchronize)
    ROW("cuLaunchKernel", cuLaunchKernel)
    ROW("cuStreamBeginCapture", cuStreamBeginCapture_v2)
    ROW("cuGraphLaunch", cuGraphLaunch)
    ROW("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain)
    ROW("cuStreamCreate", cuStreamCreate)
    ROW("cuModuleLoadData", cuModuleLoadData)
    ROW("cuModuleGetFunction", cuModuleGetFunction)
    ROW("cuGraphInstantiate", cuGraphInstantiateWithFlags)
    ROW("cuStreamEndCapture", cuStreamEndCapture)
    ROW("cuMemGetInfo", cuMemGetInfo_v2)
    ROW("cuPointerGetAttribute", cuPointerGetAttribute)
    ROW("cuMemAlloc", cuMemAlloc_v2)
    ROW("cuMemCreate", cuMemCreate)
    *status = *found ? 0 : 1;
    return 0;
}
