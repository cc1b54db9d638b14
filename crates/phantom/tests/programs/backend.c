// Behaves as ggml's CUDA backend does, by the interfaces of a runtime that is loaded by its SONAME:
// backend SONAME ACT [NUMBER]. Prints what it was answered.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *runtime, *driver;

static void *named(const char *name) {
    void *found = dlsym(runtime, name);
    if (!found) found = dlsym(driver, name);
    if (!found) {
        printf("no %s\n", name);
        exit(3);
    }
    return found;
}
#define CALL(name, ...) ((int (*)())named(#name))(__VA_ARGS__)

static int word(const unsigned char *at) {
    int value;
    memcpy(&value, at, sizeof value);
    return value;
}

static void devices(int version) {
    int count = -1;
    int said = CALL(cudaGetDeviceCount, &count);
    printf("%d cards, status %d\n", count, said);
    for (int card = 0; card < count; card++) {
        unsigned char block[2048];
        memset(block, 0xee, sizeof block);
        if (version == 12) CALL(cudaGetDeviceProperties_v2, block, card);
        else CALL(cudaGetDeviceProperties, block, card);
        int cc, vmm, processors = version == 13 ? 384 : 388;
        CALL(cudaDeviceGetAttribute, &cc, 75, card);
        CALL(cuDeviceGetAttribute, &vmm, 102, card);
        size_t free, total;
        CALL(cudaSetDevice, card);
        CALL(cudaMemGetInfo, &free, &total);
        char bus[32] = "";
        CALL(cudaDeviceGetPCIBusId, bus, (int)sizeof bus, card);
        size_t end = version == 13 ? 1008 : version == 12 ? 1032 : 728;
        printf("%s, cc %d.%d and %d, %d processors, free %zu of %zu, vmm %d, %s, end %02x%02x\n", (char *)block, word(block + 360),
               word(block + 364), cc, word(block + processors), free, total, vmm, bus, block[end - 1], block[end]);
    }
    printf("card 99: %d, %d\n", CALL(cudaSetDevice, 99), CALL(cudaGetDeviceProperties, (void *)0, 0));
}

static void *other(void *unused) {
    int card = -1;
    CALL(cudaGetDevice, &card);
    printf("another thread uses card %d\n", card);
    return unused;
}

static void memory(void) {
    char *host = 0, *device = 0, *managed = 0;
    printf("taken %d %d %d", CALL(cudaMalloc, &device, (size_t)3 << 30), CALL(cudaMallocHost, &host, (size_t)1 << 20),
           CALL(cudaMallocManaged, &managed, (size_t)1 << 20, 1));
    host[0] = managed[0] = 1;
    host[(1 << 20) - 1] = 2;
    size_t free, total;
    CALL(cudaMemGetInfo, &free, &total);
    printf(", free %zu\n", free);
    printf("copies %d %d\n", CALL(cudaMemcpyAsync, device, host, (size_t)1 << 20, 1, (void *)0),
           CALL(cudaMemset, device, 0, (size_t)3 << 30));
    void *none = device;
    int large = CALL(cudaMalloc, &none, (size_t)1 << 60);
    int first = CALL(cudaFree, device), again = CALL(cudaFree, device);
    printf("too large %d, null %d\n", large, none == 0);
    printf("given %d %d %d, again %d, nothing %d\n", first, CALL(cudaFreeHost, host), CALL(cudaFree, managed), again,
           CALL(cudaFree, (void *)0));
}

static void pool(void) {
    struct { int kind, handles, location_kind, location; char rest[64]; } properties = {1, 0, 1, 0, {0}};
    size_t grain = 0;
    CALL(cuMemGetAllocationGranularity, &grain, &properties, 0);
    char *start = 0;
    CALL(cuMemAddressReserve, &start, (size_t)32 << 30, (size_t)0, (char *)0, (unsigned long long)0);
    for (int part = 0; part < 3; part++) {
        unsigned long long handle;
        CALL(cuMemCreate, &handle, grain, &properties, (unsigned long long)0);
        CALL(cuMemMap, start + part * grain, grain, (size_t)0, handle, (unsigned long long)0);
        CALL(cuMemRelease, handle);
    }
    size_t free, total;
    CALL(cudaMemGetInfo, &free, &total);
    CALL(cuMemUnmap, start, 3 * grain);
    size_t after;
    CALL(cudaMemGetInfo, &after, &total);
    properties.location = 7;
    unsigned long long handle;
    printf("grain %zu, free %zu, then %zu, card 7: %d, freed %d\n", grain, free, after,
           CALL(cuMemCreate, &handle, grain, &properties, (unsigned long long)0), CALL(cuMemAddressFree, start, (size_t)32 << 30));
}

static void work(void) {
    void *stream = 0, *event = 0, *graph = 0, *whole = 0, *blas = 0;
    CALL(cudaStreamCreateWithFlags, &stream, 1);
    CALL(cudaEventCreateWithFlags, &event, 2);
    CALL(cudaStreamBeginCapture, stream, 2);
    CALL(cudaStreamEndCapture, stream, &graph);
    CALL(cudaGraphInstantiate, &whole, graph, 0ull);
    CALL(cublasCreate_v2, &blas);
    printf("objects %d, launched %d, product %d, error %d, %s\n", stream != event && graph != whole && blas,
           CALL(cudaGraphLaunch, whole, stream), CALL(cublasGemmEx, blas), CALL(cudaGetLastError),
           ((const char *(*)(int))named("cudaGetErrorString"))(2));
    static char stub;
    int blocks = -1;
    CALL(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, &blocks, &stub, 256, (size_t)40000, 0);
    printf("a kernel without code: %d blocks, no fat binary %d\n", blocks, CALL(__cudaRegisterFatBinary, (void *)0) != 0);
}

int main(int count, char **words) {
    if (count < 3) return 2;
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!strcmp(words[2], "static")) {
        printf("cuInit %d\n", ((int (*)(unsigned))dlsym(driver, "cuInit"))(0));
        return 0;
    }
    runtime = dlopen(words[1], RTLD_NOW);
    if (!runtime || !driver) {
        printf("%s\n", dlerror());
        return 4;
    }
    if (!strcmp(words[2], "devices")) devices(atoi(words[3]));
    if (!strcmp(words[2], "memory")) memory();
    if (!strcmp(words[2], "pool")) pool();
    if (!strcmp(words[2], "work")) work();
    if (!strcmp(words[2], "threads")) {
        CALL(cudaSetDevice, 1);
        pthread_t thread;
        pthread_create(&thread, 0, other, 0);
        pthread_join(thread, 0);
        int card;
        CALL(cudaGetDevice, &card);
        printf("this one card %d\n", card);
    }
    if (!strcmp(words[2], "touch")) {
        char *device;
        CALL(cudaMalloc, &device, (size_t)4096);
        device[0] = 1;
    }
    return 0;
}
