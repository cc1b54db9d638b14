// An interposer that finds what it stands for with RTLD_NEXT, and a program that sees whether names mean what they should.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void absent(void *handle, const char *name) {
    void *found = dlsym(handle, name);
    const char *error = dlerror();
    printf("%s: %s, %s\n", name, found ? "found" : "absent", error ? "said" : "unsaid");
}

int main(void) {
    void *(*next)(size_t) = dlsym(RTLD_NEXT, "malloc");
    void *(*any)(size_t) = dlsym(RTLD_DEFAULT, "malloc");
    printf("malloc %d\n", next && next == any);
    absent(RTLD_DEFAULT, "no such function");
    // Without a driver there is none of its functions, whoever exports them.
    absent(RTLD_DEFAULT, "cuInit");
    absent(dlopen(NULL, RTLD_NOW), "cuMemAlloc_v2");
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    printf("library %d\n", library != NULL);
    return 0;
}
