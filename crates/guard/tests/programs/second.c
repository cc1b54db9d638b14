// Another preload that stands in front of dlsym, as overlays and profilers do. It looks, and passes on.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef void *(*lookup)(void *, const char *);

__attribute__((noinline)) void *dlsym(void *handle, const char *name) {
    static lookup real;
    if (!real) real = (lookup)dlvsym(RTLD_NEXT, "dlsym", VERSION);
    if (!strcmp(name, "cuDeviceGetCount")) fprintf(stderr, "second: asked for %s\n", name);
    return real(handle, name);
}
