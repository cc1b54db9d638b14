// A HIP program that does what its arguments say, one line of output for each, and comes by the runtime's functions through the
// door that its first argument names:
//
//   link    ELF import (built with -DLINK and the library)
//   dlsym   dlopen(RTLD_LOCAL) and dlsym, as ggml loads its backends
//   global  dlopen(RTLD_GLOBAL) and dlsym(RTLD_DEFAULT)
//   proc    hipGetProcAddress
//
// The second argument is the library's name. Blocks are numbered in the order in which they were asked for.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "least.h"

typedef struct { int kind, handles, location, id; void *windows; uint64_t flags; } properties;
typedef struct { int kind, handles, location, id; void *security; size_t most; unsigned char rest[56]; } pool_properties;

#define FUNCTIONS(X) \
    X(hipGetDeviceCount, (int *)) X(hipSetDevice, (int)) X(hipDeviceReset, (void)) X(hipDeviceSynchronize, (void)) \
    X(hipGetLastError, (void)) X(hipDeviceGetAttribute, (int *, int, int)) X(hipDeviceTotalMem, (size_t *, int)) \
    X(hipGetDevicePropertiesR0600, (char *, int)) X(hipGetDevicePropertiesR0000, (char *, int)) \
    X(hipMemGetInfo, (size_t *, size_t *)) X(hipMalloc, (void **, size_t)) X(hipExtMallocWithFlags, (void **, size_t, unsigned)) \
    X(hipMallocPitch, (void **, size_t *, size_t, size_t)) X(hipMallocManaged, (void **, size_t, unsigned)) \
    X(hipFree, (void *)) X(hipMemAdvise, (const void *, size_t, int, int)) X(hipHostMalloc, (void **, size_t, unsigned)) X(hipHostFree, (void *)) \
    X(hipMallocAsync, (void **, size_t, void *)) X(hipFreeAsync, (void *, void *)) X(hipMemPoolCreate, (void **, const pool_properties *)) \
    X(hipMallocFromPoolAsync, (void **, size_t, void *, void *)) X(hipMemPoolDestroy, (void *)) X(hipMemPoolTrimTo, (void *, size_t)) \
    X(hipMemCreate, (void **, size_t, const properties *, uint64_t)) X(hipMemRelease, (void *)) \
    X(hipMemAddressReserve, (void **, size_t, size_t, void *, uint64_t)) X(hipMemMap, (void *, size_t, size_t, void *, uint64_t)) \
    X(hipMemUnmap, (void *, size_t)) X(hipStreamCreateWithFlags, (void **, unsigned)) X(hipStreamBeginCapture, (void *, int)) \
    X(hipStreamEndCapture, (void *, void **)) X(hipMemset, (void *, int, size_t)) X(hipMemcpy, (void *, const void *, size_t, int))

#ifdef LINK
#define DECLARE(name, arguments) extern int name arguments;
#define FIND(name, arguments)
#else
#define DECLARE(name, arguments) static int (*name) arguments;
#define FIND(name, arguments) name = (int (*) arguments)found(words[1], #name);
#endif
FUNCTIONS(DECLARE)

#ifndef LINK
static void *library;

static void *found(const char *door, const char *name) {
    void *function = 0;
    if (!strcmp(door, "proc")) {
        int (*ask)(const char *, void **, int, uint64_t, int *) =
            (int (*)(const char *, void **, int, uint64_t, int *))dlsym(library, "hipGetProcAddress");
        ask(name, &function, 60400000, 0, 0);
    } else {
        function = dlsym(!strcmp(door, "global") ? RTLD_DEFAULT : library, name);
    }
    if (!function) fprintf(stderr, "no %s\n", name), exit(70);
    return function;
}
#endif

static void *slots[256];
static int used;

static void **slot(void) {
    return &slots[used++];
}

/* What is asked for most: every call is given back at once. */
static int speed(void) {
    void *block, *pool;
    size_t left, total;
    char said[1472];
    pool_properties of = {1, 0, 1, 0, 0, 0, {0}};
    properties physical = {1, 0, 1, 0, 0, 0};
    hipMemPoolCreate(&pool, &of);
    LEAST("malloc, free", 2, hipMalloc(&block, 4096); hipFree(block));
    LEAST("managed, free", 2, hipMallocManaged(&block, 4096, 1); hipFree(block));
    LEAST("host, host free", 2, hipHostMalloc(&block, 4096, 0); hipHostFree(block));
    LEAST("async, free async", 2, hipMallocAsync(&block, 4096, 0); hipFreeAsync(block, 0));
    LEAST("from pool, free async", 2, hipMallocFromPoolAsync(&block, 4096, pool, 0); hipFreeAsync(block, 0));
    LEAST("create, release", 2, hipMemCreate(&block, 2 << 20, &physical, 0); hipMemRelease(block));
    LEAST("info", 1, hipMemGetInfo(&left, &total));
    LEAST("total", 1, hipDeviceTotalMem(&total, 0));
    LEAST("properties", 1, hipGetDevicePropertiesR0600(said, 0));
    return 0;
}

static int act(char *word) {
    uint64_t given[3] = {0};
    size_t one = 0, two = 0;
    char said[1472];
    int value = 0;
    char *rest = word, *name = strsep(&rest, ":");
    for (int i = 0; i < 3 && rest; i++) given[i] = strtoull(strsep(&rest, ":"), 0, 0);
    properties physical = {1, 0, (int)given[1] ? (int)given[1] : 1, 0, 0, 0};
    pool_properties pool = {1, 0, 1, (int)given[0], 0, 0, {0}};
#define IS(text) (!strcmp(name, text))
    if (IS("speed")) return speed();
    if (IS("cuda")) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
        return printf("cuda %d\n", init(0));
    }
    if (IS("count")) { int code = hipGetDeviceCount(&value); return printf("count %d %d\n", code, value); }
    if (IS("info")) { int code = hipMemGetInfo(&one, &two); return printf("info %d %zu %zu\n", code, one, two); }
    if (IS("total")) { int code = hipDeviceTotalMem(&one, given[0]); return printf("total %d %zu\n", code, one); }
    if (IS("attribute")) { int code = hipDeviceGetAttribute(&value, given[0], 0); return printf("attribute %d %d\n", code, value); }
    if (IS("properties")) { int code = hipGetDevicePropertiesR0600(said, given[0]); return printf("properties %d %zu\n", code, *(size_t *)(said + 288)); }
    if (IS("old-properties")) { int code = hipGetDevicePropertiesR0000(said, given[0]); return printf("old-properties %d %zu\n", code, *(size_t *)(said + 256)); }
    if (IS("read")) {
        int code = hipMemcpy(said, (char *)slots[given[0]] + given[1], 1, 2);
        return printf("read %d %d\n", code, (unsigned char)said[0]);
    }
    int code = IS("device") ? hipSetDevice(given[0])
        : IS("reset") ? hipDeviceReset()
        : IS("sync") ? hipDeviceSynchronize()
        : IS("last") ? hipGetLastError()
        : IS("alloc") ? hipMalloc(slot(), given[0])
        : IS("alloc-null") ? hipMalloc(0, given[0])
        : IS("ext") ? hipExtMallocWithFlags(slot(), given[0], 0)
        : IS("pitch") ? hipMallocPitch(slot(), &one, given[0], given[1])
        : IS("advise") ? hipMemAdvise(slots[given[0]], 4096, 100, 0)
        : IS("managed") ? hipMallocManaged(slot(), given[0], 1)
        : IS("free") ? hipFree(slots[given[0]])
        : IS("free-unknown") ? hipFree((void *)(uintptr_t)given[0])
        : IS("host") ? hipHostMalloc(slot(), given[0], 0)
        : IS("host-free") ? hipHostFree(slots[given[0]])
        : IS("async") ? hipMallocAsync(slot(), given[0], 0)
        : IS("free-async") ? hipFreeAsync(slots[given[0]], 0)
        : IS("pool") ? hipMemPoolCreate(slot(), &pool)
        : IS("from-pool") ? hipMallocFromPoolAsync(slot(), given[0], slots[given[1]], 0)
        : IS("drop-pool") ? hipMemPoolDestroy(slots[given[0]])
        : IS("trim") ? hipMemPoolTrimTo(slots[given[0]], given[1])
        : IS("physical") ? hipMemCreate(slot(), given[0], &physical, 0)
        : IS("drop-physical") ? hipMemRelease(slots[given[0]])
        : IS("reserve") ? hipMemAddressReserve(slot(), given[0], 0, 0, 0)
        : IS("map") ? hipMemMap(slots[given[0]], given[1], 0, slots[given[2]], 0)
        : IS("unmap") ? hipMemUnmap(slots[given[0]], given[1])
        : IS("stream") ? hipStreamCreateWithFlags(slot(), 1)
        : IS("capture") ? hipStreamBeginCapture(slots[given[0]], 0)
        : IS("end-capture") ? hipStreamEndCapture(slots[given[0]], slot())
        : IS("fill") ? hipMemset(slots[given[0]], given[1], given[2])
                     : (fprintf(stderr, "unknown word %s\n", name), exit(71), 0);
    return printf("%s %d\n", name, code);
}

int main(int count, char **words) {
#ifndef LINK
    library = dlopen(words[2], RTLD_NOW | (strcmp(words[1], "global") ? RTLD_LOCAL : RTLD_GLOBAL));
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 70;
    FUNCTIONS(FIND)
#endif
    setvbuf(stdout, 0, _IOLBF, 0);
    for (int i = 3; i < count; i++) act(words[i]);
    return 0;
}
