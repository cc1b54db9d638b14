// A CUDA program that does what its arguments say, one line of output for each, and comes by the driver's functions through the
// door that its first argument names:
//
//   link     ELF import (built with -DLINK and the library)
//   dlsym    dlopen(RTLD_LOCAL) and dlsym, as ggml and NVML's users do
//   global   dlopen(RTLD_GLOBAL) and dlsym(RTLD_DEFAULT)
//   runtime  dlsym for cuGetProcAddress_v2, and everything else through it, as the CUDA runtime does since 12.0
//   runtime11  the same with cuGetProcAddress
//   thread   as runtime, with per-thread default streams
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "least.h"

typedef uint64_t dptr;
typedef struct { int type, id; } location;
typedef struct { int type, handles; location where; void *security; unsigned char rest[8]; } properties;
typedef struct { int type, handles; location where; void *security; size_t most; unsigned short usage; unsigned char rest[54]; } pool_properties;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } solid;
typedef struct { size_t width, height; int format; unsigned channels; } flat;

#define FUNCTIONS(X) \
    X(cuInit, "cuInit", (unsigned)) \
    X(cuDeviceGetCount, "cuDeviceGetCount", (int *)) \
    X(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int *, int, int)) \
    X(cuDeviceTotalMem_v2, "cuDeviceTotalMem", (size_t *, int)) \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (void **, int)) \
    X(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", (int)) \
    X(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", (int)) \
    X(cuCtxCreate_v2, "cuCtxCreate", (void **, unsigned, int)) \
    X(cuCtxDestroy_v2, "cuCtxDestroy", (void *)) \
    X(cuCtxSetCurrent, "cuCtxSetCurrent", (void *)) \
    X(cuMemGetInfo_v2, "cuMemGetInfo", (size_t *, size_t *)) \
    X(cuMemAlloc_v2, "cuMemAlloc", (dptr *, size_t)) \
    X(cuMemAllocPitch_v2, "cuMemAllocPitch", (dptr *, size_t *, size_t, size_t, unsigned)) \
    X(cuMemAllocManaged, "cuMemAllocManaged", (dptr *, size_t, unsigned)) \
    X(cuMemFree_v2, "cuMemFree", (dptr)) \
    X(cuMemHostAlloc, "cuMemHostAlloc", (void **, size_t, unsigned)) \
    X(cuMemAllocHost_v2, "cuMemAllocHost", (void **, size_t)) \
    X(cuMemFreeHost, "cuMemFreeHost", (void *)) \
    X(cuMemHostRegister_v2, "cuMemHostRegister", (void *, size_t, unsigned)) \
    X(cuMemHostUnregister, "cuMemHostUnregister", (void *)) \
    X(cuMemAllocAsync, "cuMemAllocAsync", (dptr *, size_t, void *)) \
    X(cuMemFreeAsync, "cuMemFreeAsync", (dptr, void *)) \
    X(cuMemPoolCreate, "cuMemPoolCreate", (void **, const pool_properties *)) \
    X(cuMemPoolSetAttribute, "cuMemPoolSetAttribute", (void *, int, void *)) \
    X(cuMemPoolTrimTo, "cuMemPoolTrimTo", (void *, size_t)) \
    X(cuMemPoolDestroy, "cuMemPoolDestroy", (void *)) \
    X(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", (dptr *, size_t, void *, void *)) \
    X(cuStreamSynchronize, "cuStreamSynchronize", (void *)) \
    X(cuStreamCreate, "cuStreamCreate", (void **, unsigned)) \
    X(cuStreamBeginCapture_v2, "cuStreamBeginCapture", (void *, int)) \
    X(cuStreamEndCapture, "cuStreamEndCapture", (void *, void **)) \
    X(cuMemCreate, "cuMemCreate", (uint64_t *, size_t, const properties *, uint64_t)) \
    X(cuMemRelease, "cuMemRelease", (uint64_t)) \
    X(cuMemAddressReserve, "cuMemAddressReserve", (dptr *, size_t, size_t, dptr, uint64_t)) \
    X(cuMemMap, "cuMemMap", (dptr, size_t, size_t, uint64_t, uint64_t)) \
    X(cuMemUnmap, "cuMemUnmap", (dptr, size_t)) \
    X(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", (uint64_t *, void *)) \
    X(cuArrayCreate_v2, "cuArrayCreate", (void **, const flat *)) \
    X(cuMipmappedArrayCreate, "cuMipmappedArrayCreate", (void **, const solid *, unsigned)) \
    X(cuArrayDestroy, "cuArrayDestroy", (void *)) \
    X(cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy", (void *))

#ifdef LINK
#define X(symbol, name, arguments) extern int symbol arguments;
FUNCTIONS(X)
#undef X
#endif

#define X(symbol, name, arguments) static int(*symbol##_) arguments;
FUNCTIONS(X)
#undef X

static void *library;
static void *(*lookup)(const char *symbol, const char *name);

static void *by_dlsym(const char *symbol, const char *name) { return (void)name, dlsym(library, symbol); }
static void *by_default(const char *symbol, const char *name) { return (void)name, dlsym(RTLD_DEFAULT, symbol); }

static int (*get_v1)(const char *, void **, int, uint64_t);
static int (*get_v2)(const char *, void **, int, uint64_t, int *);
static uint64_t flags;

static void *by_procedure(const char *symbol, const char *name) {
    // The ABI that this program was written for; later ones of the same name take other arguments.
    const char *newer = getenv("CLIENT_CUDA");
    int version = strcmp(symbol, "cuCtxCreate_v2") ? newer ? atoi(newer) : 12080 : 3020;
    void *found = NULL;
    int status = -1;
    int rc = get_v2 ? get_v2(name, &found, version, flags, &status) : get_v1(name, &found, version, flags);
    return rc ? NULL : found;
}

static void enter(const char *door) {
    if (!strcmp(door, "link")) {
#ifdef LINK
#define X(symbol, name, arguments) symbol##_ = symbol;
        FUNCTIONS(X)
#undef X
#endif
        return;
    }
    library = dlopen("libcuda.so.1", RTLD_NOW | (strcmp(door, "global") ? RTLD_LOCAL : RTLD_GLOBAL));
    if (!library) {
        printf("no driver: %s\n", dlerror());
        exit(9);
    }
    lookup = strcmp(door, "global") ? by_dlsym : by_default;
    if (!strcmp(door, "runtime11")) *(void **)&get_v1 = dlsym(library, "cuGetProcAddress");
    if (!strcmp(door, "runtime") || !strcmp(door, "thread")) *(void **)&get_v2 = dlsym(library, "cuGetProcAddress_v2");
    if (!strcmp(door, "thread")) flags = 2;
    if (get_v1 || get_v2) {
        lookup = by_procedure;
        // A runtime asks for the function through itself.
        void *again = by_procedure("cuGetProcAddress_v2", "cuGetProcAddress");
        if (get_v2 && !flags && again != (void *)get_v2) printf("cuGetProcAddress differs from itself\n");
    }
#define X(symbol, name, arguments) *(void **)&symbol##_ = lookup(#symbol, name);
    FUNCTIONS(X)
#undef X
}

#define MANY 4096
static struct { dptr address; uint64_t handle; void *object; } slot[MANY];
static int slots;
static void *contexts[16];
static int context_count;

static void *race(void *size) {
    long got = 0;
    for (int i = 0; i < 2000; i++) {
        dptr p;
        cuCtxSetCurrent_(contexts[0]);
        if (!cuMemAlloc_v2_(&p, *(size_t *)size)) got++;
    }
    return (void *)got;
}

static void *churn(void *size) {
    cuCtxSetCurrent_(contexts[0]);
    for (int i = 0; i < 2000; i++) {
        dptr p;
        if (!cuMemAlloc_v2_(&p, *(size_t *)size)) cuMemFree_v2_(p);
    }
    return NULL;
}

static void *begin(void *size) {
    void *context = NULL;
    dptr p;
    if (cuInit_(0) || cuDevicePrimaryCtxRetain_(&context, 0)) return NULL;
    cuCtxSetCurrent_(context);
    return (void *)(long)!cuMemAlloc_v2_(&p, *(size_t *)size);
}

static long threads(int count, size_t size, void *(*body)(void *)) {
    pthread_t thread[64];
    long sum = 0;
    for (int i = 0; i < count; i++) pthread_create(&thread[i], NULL, body, &size);
    for (int i = 0; i < count; i++) {
        void *got;
        pthread_join(thread[i], &got);
        sum += (long)got;
    }
    return sum;
}

// What is asked for most: every call is given back at once.
static void speed(void) {
    dptr block;
    uint64_t handle;
    void *host, *stream;
    size_t left, total;
    properties physical = {.type = 1, .where = {1, 0}};
    cuStreamCreate_(&stream, 1);
    LEAST("alloc, free", 2, cuMemAlloc_v2_(&block, 4096); cuMemFree_v2_(block));
    LEAST("managed, free", 2, cuMemAllocManaged_(&block, 4096, 1); cuMemFree_v2_(block));
    LEAST("host, host free", 2, cuMemHostAlloc_(&host, 4096, 0); cuMemFreeHost_(host));
    LEAST("async, free async", 2, cuMemAllocAsync_(&block, 4096, stream); cuMemFreeAsync_(block, stream));
    LEAST("create, release", 2, cuMemCreate_(&handle, 2 << 20, &physical, 0); cuMemRelease_(handle));
    LEAST("info", 1, cuMemGetInfo_v2_(&left, &total));
    LEAST("total", 1, cuDeviceTotalMem_v2_(&total, 0));
}

// Runs one word `name:a:b:c`; false for a word that is not known.
static int act(char *word, char **rest) {
    char *save, *name = strtok_r(word, ":", &save), *part;
    size_t n[4] = {0};
    for (int i = 0; i < 4 && (part = strtok_r(NULL, ":", &save)); i++) n[i] = strtoull(part, NULL, 0);
    int rc = 0;
#define IS(text) (!strcmp(name, text))
#define SAY(...) (printf("%s %d", name, rc), printf(__VA_ARGS__), printf("\n"), fflush(stdout), 1)
#define DONE SAY("%s", "")
#define NEW slot[slots++]
    if (IS("init")) return rc = cuInit_(0), DONE;
    if (IS("retain")) {
        void *context = NULL;
        rc = cuDevicePrimaryCtxRetain_(&context, (int)n[0]);
        if (!rc) cuCtxSetCurrent_(contexts[context_count++] = context);
        return DONE;
    }
    if (IS("create")) {
        void *context = NULL;
        rc = cuCtxCreate_v2_(&context, 0, (int)n[0]);
        if (!rc) contexts[context_count++] = context;
        return DONE;
    }
    if (IS("destroy")) return rc = cuCtxDestroy_v2_(contexts[n[0]]), DONE;
    if (IS("current")) return rc = cuCtxSetCurrent_(contexts[n[0]]), DONE;
    if (IS("release")) return rc = cuDevicePrimaryCtxRelease_v2_((int)n[0]), DONE;
    if (IS("reset")) return rc = cuDevicePrimaryCtxReset_v2_((int)n[0]), DONE;
    if (IS("alloc")) return rc = cuMemAlloc_v2_(&NEW.address, n[0]), DONE;
    if (IS("alloc-null")) return rc = cuMemAlloc_v2_(NULL, n[0]), DONE;
    if (IS("free")) return rc = cuMemFree_v2_(slot[n[0]].address), DONE;
    if (IS("free-unknown")) return rc = cuMemFree_v2_(n[0]), DONE;
    if (IS("pitch")) {
        size_t pitch = 0;
        rc = cuMemAllocPitch_v2_(&NEW.address, &pitch, n[0], n[1], 4);
        return SAY(" %zu", pitch);
    }
    if (IS("managed")) return rc = cuMemAllocManaged_(&NEW.address, n[0], 1), DONE;
    if (IS("host")) return rc = cuMemHostAlloc_(&NEW.object, n[0], 0), DONE;
    if (IS("host-v2")) return rc = cuMemAllocHost_v2_(&NEW.object, n[0]), DONE;
    if (IS("free-host")) return rc = cuMemFreeHost_(slot[n[0]].object), DONE;
    if (IS("register")) {
        slot[slots].object = aligned_alloc(4096, n[0]);
        return rc = cuMemHostRegister_v2_(slot[slots++].object, n[0], 0), DONE;
    }
    if (IS("unregister")) return rc = cuMemHostUnregister_(slot[n[0]].object), DONE;
    if (IS("stream")) return rc = cuStreamCreate_(&NEW.object, 1), DONE;
    if (IS("async")) return rc = cuMemAllocAsync_(&NEW.address, n[0], slot[n[1]].object), DONE;
    if (IS("free-async")) return rc = cuMemFreeAsync_(slot[n[0]].address, slot[n[1]].object), DONE;
    if (IS("sync")) return rc = cuStreamSynchronize_(slot[n[0]].object), DONE;
    if (IS("capture")) return rc = cuStreamBeginCapture_v2_(slot[n[0]].object, 2), DONE;
    if (IS("end-capture")) {
        void *graph;
        return rc = cuStreamEndCapture_(slot[n[0]].object, &graph), DONE;
    }
    if (IS("pool")) {
        pool_properties p = {.type = 1, .where = {1, (int)n[0]}};
        uint64_t all = UINT64_MAX;
        rc = cuMemPoolCreate_(&slot[slots].object, &p);
        if (!rc) cuMemPoolSetAttribute_(slot[slots++].object, 4, &all);
        return DONE;
    }
    if (IS("from-pool")) return rc = cuMemAllocFromPoolAsync_(&NEW.address, n[0], slot[n[1]].object, slot[n[2]].object), DONE;
    if (IS("trim")) return rc = cuMemPoolTrimTo_(slot[n[0]].object, n[1]), DONE;
    if (IS("drop-pool")) return rc = cuMemPoolDestroy_(slot[n[0]].object), DONE;
    if (IS("physical")) {
        properties p = {.type = 1, .where = {n[1] ? (int)n[1] : 1, 0}};
        return rc = cuMemCreate_(&NEW.handle, n[0], &p, 0), DONE;
    }
    if (IS("drop-physical")) return rc = cuMemRelease_(slot[n[0]].handle), DONE;
    if (IS("reserve")) return rc = cuMemAddressReserve_(&NEW.address, n[0], 0, 0, 0), DONE;
    if (IS("map")) return rc = cuMemMap_(slot[n[0]].address + n[3], n[1], 0, slot[n[2]].handle, 0), DONE;
    if (IS("unmap")) return rc = cuMemUnmap_(slot[n[0]].address, n[1]), DONE;
    if (IS("keep")) return rc = cuMemRetainAllocationHandle_(&NEW.handle, (void *)slot[n[0]].address), DONE;
    if (IS("array")) {
        flat d = {n[0], n[1], 0x20, 4};
        return rc = cuArrayCreate_v2_(&NEW.object, &d), DONE;
    }
    if (IS("mipmap")) {
        solid d = {n[0], n[1], 0, 0x20, 4, 0};
        return rc = cuMipmappedArrayCreate_(&NEW.object, &d, (unsigned)n[2]), DONE;
    }
    if (IS("drop-array")) return rc = cuArrayDestroy_(slot[n[0]].object), DONE;
    if (IS("drop-mipmap")) return rc = cuMipmappedArrayDestroy_(slot[n[0]].object), DONE;
    if (IS("info")) {
        size_t free = 0, total = 0;
        rc = cuMemGetInfo_v2_(&free, &total);
        return SAY(" %zu %zu", free, total);
    }
    if (IS("info-null")) return rc = cuMemGetInfo_v2_(NULL, NULL), DONE;
    if (IS("total")) {
        size_t total = 0;
        rc = cuDeviceTotalMem_v2_(&total, (int)n[0]);
        return SAY(" %zu", total);
    }
    if (IS("attribute")) {
        int value = -1;
        rc = cuDeviceGetAttribute_(&value, (int)n[0], 0);
        return SAY(" %d", value);
    }
    if (IS("speed")) return speed(), fflush(stdout), 1;
    if (IS("race")) return SAY(" %ld", threads((int)n[0], n[1], race));
    if (IS("begin")) return SAY(" %ld", threads((int)n[0], n[1], begin));
    if (IS("churn")) return threads((int)n[0], n[1], churn), DONE;
    if (IS("close")) return rc = dlclose(library), DONE;
    if (IS("enter")) return enter("dlsym"), DONE;
    if (IS("wait")) return rc = getchar() == EOF, DONE;
    if (IS("kill")) return raise(SIGKILL);
    if (IS("die-in-alloc")) {
        // The driver's own latency makes it likely that this falls inside of a call.
        pthread_t thread;
        static size_t size = 4096;
        pthread_create(&thread, NULL, churn, &size);
        usleep((unsigned)n[0]);
        return raise(SIGKILL);
    }
    if (IS("pid")) return printf("pid %d\n", (int)getpid());
    if (IS("daemonise")) {
        // As a program that becomes a daemon: closes stderr and the descriptors of guard, and opens files of its own. Those of the
        // fake driver stay open, which does not expect this.
        close(2);
        for (int descriptor = 3; descriptor < 64; descriptor++) {
            char link[64], path[4096] = "";
            snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
            if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/trace.")) close(descriptor);
        }
        int opened = 0;
        for (int i = 0; i < 8; i++) opened += open(getenv("OPENED"), O_WRONLY | O_CREAT | O_APPEND, 0600) >= 0;
        return rc = opened != 8, DONE;
    }
    if (IS("exec")) return fflush(stdout), rc = execv(rest[0], rest), DONE;
    if (IS("fork")) {
        // The child runs the words up to `join`, and ends.
        fflush(stdout);
        pid_t child = fork();
        if (!child) return 2;
        int status;
        waitpid(child, &status, 0);
        return rc = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), DONE;
    }
    if (IS("vfork-exec")) {
        pid_t child = vfork();
        if (!child) {
            execl("/bin/true", "true", NULL);
            _exit(1);
        }
        int status;
        waitpid(child, &status, 0);
        return rc = status, DONE;
    }
    return 0;
}

int main(int count, char **words) {
    enter(words[1]);
    int child = 0;
    for (int i = 2; i < count; i++) {
        if (!strcmp(words[i], "join")) {
            if (child) return fflush(stdout), _exit(0), 0;
            continue;
        }
        if (child < 0) continue;
        char word[256];
        snprintf(word, sizeof word, "%s", words[i]);
        int done = act(word, words + i + 1);
        if (!done) return printf("no word %s\n", words[i]), 8;
        if (done == 2) child = 1;
        if (!child && !strcmp(words[i], "fork"))
            while (i + 1 < count && strcmp(words[i + 1], "join")) i++;
    }
    return 0;
}
