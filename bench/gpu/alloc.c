/* How long cuMemAlloc and cuMemFree take, with few and with many live allocations: the median of each, in nanoseconds, as
 * one JSON object. Build: cc -O2 alloc.c -o alloc -lcuda */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 2000, CROWD = 20000 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void must(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "%s gave %d\n", what, (int)result);
        exit(1);
    }
}

static void measure(const char *name, size_t size, const char *end) {
    static double taken[ROUNDS], freed[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr p;
        double start = now();
        must(cuMemAlloc(&p, size), "cuMemAlloc");
        double middle = now();
        must(cuMemFree(p), "cuMemFree");
        taken[i] = middle - start;
        freed[i] = now() - middle;
    }
    qsort(taken, ROUNDS, sizeof *taken, by_size);
    qsort(freed, ROUNDS, sizeof *freed, by_size);
    printf("\"%s alloc ns\": %.0f, \"%s free ns\": %.0f%s", name, taken[ROUNDS / 2], name, freed[ROUNDS / 2], end);
}

int main(void) {
    CUdevice device;
    CUcontext context;
    static CUdeviceptr crowd[CROWD];
    must(cuInit(0), "cuInit");
    must(cuDeviceGet(&device, 0), "cuDeviceGet");
    must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    printf("{");
    measure("4 KiB", 4096, ", ");
    measure("8 MiB", 8 << 20, ", ");
    for (int i = 0; i < CROWD; i++) must(cuMemAlloc(&crowd[i], 4096), "cuMemAlloc");
    measure("4 KiB of 20000", 4096, "}\n");
    return 0;
}
