// A stand-in for ggml's CUDA backend, as far as its legacy pool goes: the names and the shape of its class, none of its code.
#pragma once
#include <cstddef>
#include <cstdint>

typedef unsigned long long CUdeviceptr;

// What the backend lets a program do with its pool; every call below is a virtual call inside the backend, as in ggml.
struct backend {
    void * (*make)();
    void (*destroy)(void * pool);
    void * (*alloc)(void * pool, size_t size, size_t * actual);
    void (*release)(void * pool, void * block, size_t size);
    // Calls that a compiler resolved by itself, past the vtable.
    void * (*alloc_inlined)(void * pool, size_t size, size_t * actual);
    void (*release_inlined)(void * pool, void * block, size_t size);
};

extern "C" const backend * backend_functions();

// The driver's functions, found as a statically linked CUDA runtime finds them.
extern "C" void * driver_function(const char * name);

#ifdef HIP
// AMD's runtime has the driver's functions under its own names.
#define RUNTIME "libamdhip64.so.6"
#include <cstring>
static inline const char * runtime_name(const char * name) {
    static const char * const names[][2] = {
        {"cuInit", "hipInit"}, {"cuDevicePrimaryCtxRetain", "hipDevicePrimaryCtxRetain"}, {"cuCtxSetCurrent", "hipCtxSetCurrent"},
        {"cuMemGetInfo_v2", "hipMemGetInfo"}, {"cuMemAlloc_v2", "hipMalloc"}, {"cuMemFree_v2", "hipFree"},
        {"cuMemsetD8_v2", "hipMemsetD8"}, {"cuMemcpyDtoH_v2", "hipMemcpyDtoH"}, {"cuCtxSynchronize", "hipDeviceSynchronize"},
    };
    for (const auto & pair : names) {
        if (strcmp(pair[0], name) == 0) {
            return pair[1];
        }
    }
    return name;
}
#else
#define RUNTIME "libcuda.so.1"
static inline const char * runtime_name(const char * name) {
    return name;
}
#endif

template <typename F> F driver(const char * name) {
    return reinterpret_cast<F>(driver_function(name));
}
