/* A program that finds the driver as a static cudart does: dlopen, one dlsym, and cuGetProcAddress for the rest.
 * CUDART_VERSION in the environment is the version it asks for; CUDART_FLAGS the flags. */
#include <dlfcn.h>
#include <string.h>

#include "cuda.h"

#define POINTER(name, arguments) static CUresult(*name) arguments;
CUDA_FUNCTIONS(POINTER)

#include "life.h"

typedef CUresult (*get_proc_address)(const char *, void **, int, uint64_t, int *);

static void *find(get_proc_address get, const char *symbol) {
    char name[64];
    const char *version = getenv("CUDART_VERSION"), *flags = getenv("CUDART_FLAGS");
    void *found = NULL;
    int status = -1;
    snprintf(name, sizeof name, "%s", symbol);
    char *suffix = strstr(name, "_v2"); /* callers give the name without the suffix of the ABI */
    if (suffix != NULL)
        *suffix = '\0';
    CUresult code = get(name, &found, version ? atoi(version) : 12080, flags ? strtoull(flags, NULL, 10) : 0, &status);
    if (code != 0 || found == NULL || status != 0) {
        fprintf(stderr, "cuGetProcAddress of %s gave %d, status %d\n", name, code, status);
        exit(1);
    }
    return found;
}

int main(int count, char **words) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    get_proc_address get = (get_proc_address)dlsym(library, "cuGetProcAddress_v2");
    if (get == NULL) {
        fprintf(stderr, "no cuGetProcAddress_v2\n");
        return 1;
    }
    /* cudart asks for the function that it is asking with, too. */
    get = (get_proc_address)find(get, "cuGetProcAddress");
#define FIND(name, arguments) name = (CUresult(*) arguments)find(get, #name);
    CUDA_FUNCTIONS(FIND)
    int code = life(count - 1, words + 1);
    dlclose(library);
    return code;
}
