/* Calls one function of the driver so many times: `calls OPERATION TIMES DOOR`, where DOOR is dlsym or procedure (as the CUDA
 * runtime finds it). What one call costs is the difference between two runs of different length; see calls.py. `stand by` is ready
 * to be somebody's neighbour until its input ends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096 };

static void *library;
static int (*procedure)(const char *, void **, int, uint64_t, int *);

static void *function(const char *symbol, const char *name) {
    void *found = NULL;
    int status;
    if (!procedure || procedure(name, &found, 12080, 0, &status)) found = dlsym(library, symbol);
    if (!found) {
        fprintf(stderr, "no %s\n", symbol);
        exit(1);
    }
    return found;
}

static void must(int result, const char *what) {
    if (!result) return;
    fprintf(stderr, "%s gave %d\n", what, result);
    exit(1);
}

int main(int count, char **words) {
    if (count != 4) return 2;
    const char *operation = words[1];
    long times = atol(words[2]);
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return 3;
    if (!strcmp(words[3], "procedure")) *(void **)&procedure = dlsym(library, "cuGetProcAddress_v2");
    int (*init)(unsigned) = function("cuInit", "cuInit");
    int (*retain)(void **, int) = function("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain");
    int (*set)(void *) = function("cuCtxSetCurrent", "cuCtxSetCurrent");
    int (*allocate)(uint64_t *, size_t) = function("cuMemAlloc_v2", "cuMemAlloc");
    int (*release)(uint64_t) = function("cuMemFree_v2", "cuMemFree");
    int (*create)(uint64_t *, size_t, const void *, uint64_t) = function("cuMemCreate", "cuMemCreate");
    int (*destroy)(uint64_t) = function("cuMemRelease", "cuMemRelease");
    int (*upload)(uint64_t, const void *, size_t, void *) = function("cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync");
    int (*move)(uint64_t, uint64_t, size_t, void *) = function("cuMemcpyDtoDAsync_v2", "cuMemcpyDtoDAsync");
    int (*copy)(uint64_t, uint64_t, size_t, void *) = function("cuMemcpyAsync", "cuMemcpyAsync");
    int (*fill)(uint64_t, unsigned char, size_t, void *) = function("cuMemsetD8Async", "cuMemsetD8Async");
    int (*wait)(void *) = function("cuStreamSynchronize", "cuStreamSynchronize");
    int (*stream)(void **, unsigned) = function("cuStreamCreate", "cuStreamCreate");
    int (*mem_info)(size_t *, size_t *) = function("cuMemGetInfo_v2", "cuMemGetInfo");
    int (*load)(void **, const void *) = function("cuModuleLoadData", "cuModuleLoadData");
    int (*get)(void **, void *, const char *) = function("cuModuleGetFunction", "cuModuleGetFunction");
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **) =
        function("cuLaunchKernel", "cuLaunchKernel");
    int (*attribute)(void *, int, uint64_t) = function("cuPointerGetAttribute", "cuPointerGetAttribute");
    int (*begin)(void *, int) = function("cuStreamBeginCapture_v2", "cuStreamBeginCapture");
    int (*end)(void *, void **) = function("cuStreamEndCapture", "cuStreamEndCapture");
    int (*instantiate)(void **, void *, uint64_t) = function("cuGraphInstantiateWithFlags", "cuGraphInstantiate");
    int (*replay)(void *, void *) = function("cuGraphLaunch", "cuGraphLaunch");
    void *context, *queue, *module, *kernel, *graph, *exec;
    uint64_t at, other, crowd[MOST];
    static char host[64];
    must(init(0), "cuInit");
    must(retain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(set(context), "cuCtxSetCurrent");
    must(stream(&queue, 1), "cuStreamCreate");
    must(allocate(&at, 64), "cuMemAlloc");
    must(allocate(&other, 64), "cuMemAlloc");
    must(load(&module, ""), "cuModuleLoadData");
    must(get(&kernel, module, "touch"), "cuModuleGetFunction");
    must(begin(queue, 2), "cuStreamBeginCapture");
    must(fill(at, 1, 64, queue), "cuMemsetD8Async");
    must(end(queue, &graph), "cuStreamEndCapture");
    must(instantiate(&exec, graph, 0), "cuGraphInstantiate");
    uint64_t length = 1;
    void *parameters[] = {&at, &length};
    struct { int type, handles, where, card; void *security; unsigned char rest[8]; } physical = {1, 0, 1, 0, 0, {0}};
    if (!strcmp(operation, "alloc among 4096"))
        for (int i = 0; i < MOST; i++) must(allocate(&crowd[i], 512), "cuMemAlloc");
#define REPEAT(name, ...) \
    if (!strcmp(operation, name)) for (long i = 0; i < times; i++) { __VA_ARGS__; }
    REPEAT("launch", must(launch(kernel, 1, 1, 1, 1, 1, 1, 0, queue, parameters, NULL), "cuLaunchKernel"))
    REPEAT("graph launch", must(replay(exec, queue), "cuGraphLaunch"))
    REPEAT("copy to the card", must(upload(at, host, 64, queue), "cuMemcpyHtoDAsync"))
    REPEAT("copy on the card", must(move(other, at, 64, queue), "cuMemcpyDtoDAsync"))
    REPEAT("copy, unified", must(copy(other, at, 64, queue), "cuMemcpyAsync"))
    REPEAT("memset", must(fill(at, 1, 64, queue), "cuMemsetD8Async"))
    REPEAT("wait for a stream", must(wait(queue), "cuStreamSynchronize"))
    REPEAT("pointer attribute", unsigned kind; must(attribute(&kind, 2, at), "cuPointerGetAttribute"))
    REPEAT("free memory", size_t left, all; must(mem_info(&left, &all), "cuMemGetInfo"))
    REPEAT("alloc and free, 4 KiB", uint64_t p; must(allocate(&p, 4096), "cuMemAlloc"); must(release(p), "cuMemFree"))
    REPEAT("alloc and free, 64 MiB", uint64_t p; must(allocate(&p, 64 << 20), "cuMemAlloc"); must(release(p), "cuMemFree"))
    REPEAT("alloc among 4096", uint64_t p; must(allocate(&p, 4096), "cuMemAlloc"); must(release(p), "cuMemFree"))
    REPEAT("create and release, 2 MiB", uint64_t h; must(create(&h, 2 << 20, &physical, 0), "cuMemCreate"); must(destroy(h), "cuMemRelease"))
    if (!strcmp(operation, "stand by")) {
        puts("there");
        fflush(stdout);
        getchar();
    }
    REPEAT("look a name up", if (!dlsym(library, "cuLaunchKernel")) return 4)
    return 0;
}
