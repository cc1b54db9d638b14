/* Preloaded into an engine: what it asks of the CUDA runtime and gives back, a line each, in the file that REQUESTS names: the card and
 * the bytes, below 0 for what is given back. Physical memory of a virtual pool is a request of the driver and is left out.
 * Build: cc -O2 -shared -fPIC requests.c -o librequests.so -ldl */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { LIVE = 4096 };

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct {
    void *at;
    long long bytes;
    int card;
} live[LIVE];

static void *next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    /* A backend that is loaded later brings its runtime into a scope of its own. */
    const char *runtimes[] = {"libcudart.so.13", "libcudart.so.12"};
    for (int i = 0; !found && i < 2; i++) {
        void *runtime = dlopen(runtimes[i], RTLD_LAZY | RTLD_NOLOAD);
        found = runtime ? dlsym(runtime, name) : NULL;
    }
    if (!found) {
        fprintf(stderr, "requests: no %s\n", name);
        exit(1);
    }
    return found;
}

static void say(int card, long long bytes) {
    const char *path = getenv("REQUESTS");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "%d %lld\n", card, bytes);
        fclose(file);
    }
}

static void taken(void *at, size_t bytes) {
    int card = -1;
    ((int (*)(int *))next("cudaGetDevice"))(&card);
    pthread_mutex_lock(&guard);
    for (int i = 0; i < LIVE; i++) {
        if (!live[i].at) {
            live[i].at = at;
            live[i].bytes = (long long)bytes;
            live[i].card = card;
            break;
        }
    }
    say(card, (long long)bytes);
    pthread_mutex_unlock(&guard);
}

int cudaMalloc(void **at, size_t bytes) {
    int result = ((int (*)(void **, size_t))next("cudaMalloc"))(at, bytes);
    if (result == 0 && *at)
        taken(*at, bytes);
    return result;
}

int cudaMallocManaged(void **at, size_t bytes, unsigned flags) {
    int result = ((int (*)(void **, size_t, unsigned))next("cudaMallocManaged"))(at, bytes, flags);
    if (result == 0 && *at)
        taken(*at, bytes);
    return result;
}

int cudaFree(void *at) {
    pthread_mutex_lock(&guard);
    for (int i = 0; at && i < LIVE; i++) {
        if (live[i].at == at) {
            live[i].at = NULL;
            say(live[i].card, -live[i].bytes);
            break;
        }
    }
    pthread_mutex_unlock(&guard);
    return ((int (*)(void *))next("cudaFree"))(at);
}
