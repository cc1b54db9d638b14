/* Threads that allocate, write, compare and free, all against one limit. Arguments: threads, rounds, MiB a block. */
#include "cuda.h"

#include <pthread.h>

static CUcontext context;
static size_t size;
static int rounds, given, refused, wrong;

static void *run(void *number) {
    unsigned char value = (unsigned char)(size_t)number, found[64];
    MUST(cuCtxSetCurrent(context));
    for (int round = 0; round < rounds; ++round) {
        CUdeviceptr at;
        CUresult result = cuMemAlloc_v2(&at, size);
        if (result == 2) {
            __atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED);
            continue;
        }
        must(result, "cuMemAlloc");
        __atomic_add_fetch(&given, 1, __ATOMIC_RELAXED);
        MUST(cuMemsetD8_v2(at, value, size));
        for (size_t place = 0; place + sizeof found <= size; place += size / 7) {
            MUST(cuMemcpyDtoH_v2(found, at + place, sizeof found));
            for (size_t i = 0; i < sizeof found; ++i)
                if (found[i] != value) __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
        }
        MUST(cuMemFree_v2(at));
    }
    return NULL;
}

int main(int count, char **arguments) {
    (void)count;
    int threads = atoi(arguments[1]);
    rounds = atoi(arguments[2]);
    size = (size_t)atoi(arguments[3]) << 20;
    context = start(0);
    pthread_t ids[64];
    for (size_t i = 0; i < (size_t)threads && i < 64; ++i) pthread_create(&ids[i], NULL, run, (void *)(i + 1));
    for (int i = 0; i < threads && i < 64; ++i) pthread_join(ids[i], NULL);
    printf("given %d refused %d wrong %d\n", given, refused, wrong);
    return wrong != 0;
}
