// A libcuda.so.1 that passes on to another one, which it finds by dlsym, as WSL's does.
#define _GNU_SOURCE
#include <dlfcn.h>

int cuInit(unsigned flags) {
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(dlopen(INNER, RTLD_NOW | RTLD_LOCAL), "cuInit");
    return init(flags);
}
