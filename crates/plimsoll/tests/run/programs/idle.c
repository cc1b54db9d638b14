/* usage: idle MIB: takes and frees memory of the driver's pool, which keeps it, and says `ready`. Then it waits for its stream again and
 * again until its stdin ends, or with `idle MIB still` only until then. */
#include <dlfcn.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long pointer;
typedef struct { int type, handles, where[2]; void *security; size_t most; unsigned short usage; unsigned char rest[54]; } properties;

static void *library;

static void *function(const char *name) {
    void *address = dlsym(library, name);
    if (!address) exit(99);
    return address;
}

int main(int count, char **words) {
    void *context, *pool;
    pointer taken;
    uint64_t all = UINT64_MAX;
    properties card = {.type = 1, .where = {1, 0}};
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library || count < 2) return 98;
    int (*init)(unsigned) = function("cuInit");
    int (*retain)(void **, int) = function("cuDevicePrimaryCtxRetain");
    int (*set)(void *) = function("cuCtxSetCurrent");
    int (*make)(void **, const properties *) = function("cuMemPoolCreate");
    int (*keep)(void *, int, void *) = function("cuMemPoolSetAttribute");
    int (*take)(pointer *, size_t, void *, void *) = function("cuMemAllocFromPoolAsync");
    int (*give)(pointer, void *) = function("cuMemFreeAsync");
    int (*wait)(void *) = function("cuStreamSynchronize");
    if (init(0) || retain(&context, 0) || set(context) || make(&pool, &card) || keep(pool, 4, &all)) return 97;
    if (take(&taken, (size_t)atol(words[1]) << 20, pool, NULL) || give(taken, NULL) || wait(NULL)) return 96;
    puts("ready");
    fflush(stdout);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    while (poll(&input, 1, count > 2 ? -1 : 1) == 0) wait(NULL);
    return 0;
}
