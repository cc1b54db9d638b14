// The class. Compiled without -fvisibility=hidden its vtable and methods are weak and exported, as in libggml-cuda.so; with one
// derived class in sight, g++ -O2 resolves the virtual calls speculatively, as in builds without virtual memory management.
#include "backend.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <vector>

#ifndef SHAPE
#define SHAPE 0
#endif

extern "C" void * driver_function(const char * name) {
    static void * library = dlopen(RUNTIME, RTLD_NOW);
    void * function = library ? dlsym(library, runtime_name(name)) : nullptr;
    if (!function) {
        fprintf(stderr, "no %s\n", name);
        exit(70);
    }
    return function;
}

static void check(int code, const char * what) {
    if (code != 0) {
        fprintf(stderr, "%s: CUDA error %d\n", what, code);
        abort();
    }
}

static void * device_malloc(size_t size) {
    CUdeviceptr pointer = 0;
    check(driver<int (*)(CUdeviceptr *, size_t)>("cuMemAlloc_v2")(&pointer, size), "cuMemAlloc");
    return reinterpret_cast<void *>(pointer);
}

static void device_free(void * pointer) {
    check(driver<int (*)(CUdeviceptr)>("cuMemFree_v2")(reinterpret_cast<CUdeviceptr>(pointer)), "cuMemFree");
}

struct ggml_cuda_pool {
    virtual ~ggml_cuda_pool() = default;
#if SHAPE == 1
    virtual void before() {}
#endif
    virtual void * alloc(size_t size, size_t * actual_size) = 0;
    virtual void free(void * ptr, size_t size) = 0;
};

// Keeps every block it ever had and hands out the smallest that fits; grows by a twentieth.
struct ggml_cuda_pool_leg : public ggml_cuda_pool {
    struct kept {
        void * block;
        size_t size;
    };
    std::vector<kept> idle;
    size_t held = 0;

    ~ggml_cuda_pool_leg() override {
        for (const kept & one : idle) {
            device_free(one.block);
            held -= one.size;
        }
        if (held != 0) {
            fprintf(stderr, "the pool lost count: %zu\n", held);
            abort();
        }
    }

    void * alloc(size_t size, size_t * actual_size) override {
        size_t best = idle.size();
        for (size_t i = 0; i < idle.size(); i++) {
            if (idle[i].size >= size && (best == idle.size() || idle[i].size < idle[best].size)) {
                best = i;
            }
        }
        if (best < idle.size()) {
            const kept one = idle[best];
            idle.erase(idle.begin() + best);
            *actual_size = one.size;
            return one.block;
        }
        const size_t ahead = (size + size / 20 + 255) / 256 * 256;
        held += ahead;
        *actual_size = ahead;
        return device_malloc(ahead);
    }

    void free(void * ptr, size_t size) override {
        idle.push_back({ptr, size});
    }
};

static ggml_cuda_pool * of(void * pool) {
    return static_cast<ggml_cuda_pool *>(pool);
}

static void * make() {
    return static_cast<ggml_cuda_pool *>(new ggml_cuda_pool_leg());
}

static void destroy(void * pool) {
    delete of(pool);
}

static void * alloc(void * pool, size_t size, size_t * actual) {
    return of(pool)->alloc(size, actual);
}

static void release(void * pool, void * block, size_t size) {
    of(pool)->free(block, size);
}

static void * alloc_inlined(void * pool, size_t size, size_t * actual) {
    return static_cast<ggml_cuda_pool_leg *>(of(pool))->ggml_cuda_pool_leg::alloc(size, actual);
}

static void release_inlined(void * pool, void * block, size_t size) {
    static_cast<ggml_cuda_pool_leg *>(of(pool))->ggml_cuda_pool_leg::free(block, size);
}

extern "C" __attribute__((visibility("default"))) const backend * backend_functions() {
    static const backend functions = {make, destroy, alloc, release, alloc_inlined, release_inlined};
    return &functions;
}
