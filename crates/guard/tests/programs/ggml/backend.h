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

template <typename F> F driver(const char * name) {
    return reinterpret_cast<F>(driver_function(name));
}
