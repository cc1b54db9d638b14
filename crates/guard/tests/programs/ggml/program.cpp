// What an engine does with the pool, one scenario a run. Prints what it saw as KEY VALUE lines; leaves with 0 unless something
// is wrong with the memory it was given.
#include "backend.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <vector>

static const size_t MIB = 1 << 20;

static const backend * pools;

#ifdef LOCAL
// As ggml loads its backends.
static const char * path;
static void * opened;

static const backend * load() {
    opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!opened) {
        fprintf(stderr, "%s\n", dlerror());
        exit(70);
    }
    return reinterpret_cast<const backend * (*)()>(dlsym(opened, "backend_functions"))();
}

extern "C" void * driver_function(const char * name) {
    static void * library = dlopen(RUNTIME, RTLD_NOW);
    void * function = library ? dlsym(library, runtime_name(name)) : nullptr;
    if (!function) {
        fprintf(stderr, "no %s\n", name);
        exit(70);
    }
    return function;
}
#endif

static void check(int code, const char * what) {
    if (code != 0) {
        fprintf(stderr, "%s: CUDA error %d\n", what, code);
        exit(71);
    }
}

template <typename... Arguments> static void cuda(const char * name, Arguments... arguments) {
    check(driver<int (*)(Arguments...)>(name)(arguments...), name);
}

struct block {
    void * address;
    size_t size;
};

static block take(void * pool, size_t size) {
    block one = {nullptr, 0};
    one.address = pools->alloc(pool, size, &one.size);
    if (one.size < size) {
        printf("short %zu of %zu\n", one.size, size);
        exit(72);
    }
    return one;
}

static void give(void * pool, block one) {
    pools->release(pool, one.address, one.size);
}

static CUdeviceptr pointer(block one) {
    return reinterpret_cast<CUdeviceptr>(one.address);
}

// What the card has less by now, of this process and its context, in MiB.
static size_t used() {
    size_t available = 0, total = 0;
    cuda("cuMemGetInfo_v2", &available, &total);
    return (total - available) / MIB;
}

// One ubatch of 512 tokens at a depth: the temporaries of the matrices, then K and V as 16-bit floats, in the order of a real trace.
static size_t ubatch(void * pool, size_t depth) {
    for (size_t size : {9216, 2377728, 8650752, 8275968}) {
        give(pool, take(pool, size));
    }
    const block keys = take(pool, 2048 * depth);
    const block values = take(pool, 2048 * depth);
    const block mask = take(pool, 1024);
    give(pool, mask);
    const size_t at_depth = used();
    give(pool, values);
    give(pool, keys);
    return at_depth;
}

static const size_t DEPTH = 61440;

static void grow() {
    void * pool = pools->make();
    const size_t before = used();
    size_t most = 0;
    for (size_t depth = 512; depth <= DEPTH; depth += 512) {
        most = std::max(most, ubatch(pool, depth));
    }
    printf("live %zu\nreserved %zu\n", 2 * 2048 * DEPTH / MIB, most - before);
    pools->destroy(pool);
    printf("left %zu\n", used() - before);
}

// The requests of a recording in RMM's format: Thread,Time,Action,Pointer,Size,Stream.
static void replay() {
    FILE * file = fopen(getenv("RECORDING"), "r");
    if (!file) {
        exit(74);
    }
    void * pool = pools->make();
    const size_t before = used();
    std::map<unsigned long, block> live;
    size_t bytes = 0, most_live = 0, most = 0;
    char line[256], action[16];
    unsigned long number = 0, size = 0;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%*d,%*d,%15[a-z],%lx,%lu", action, &number, &size) != 3) {
            continue;
        }
        if (strcmp(action, "allocate") == 0) {
            live[number] = take(pool, size);
            bytes += size;
            most_live = std::max(most_live, bytes);
            if (size > MIB) {
                most = std::max(most, used() - before);
            }
        } else {
            give(pool, live.at(number));
            live.erase(number);
            bytes -= size;
        }
    }
    fclose(file);
    printf("live %zu\nreserved %zu\n", most_live / MIB, most);
    pools->destroy(pool);
}

// Every live block has a pattern of its own, which must still be there when it is given back, in whatever order that is.
static void pattern() {
    void * pool = pools->make();
    std::vector<std::pair<block, unsigned char>> live;
    unsigned int random = 1;
    for (int step = 0; step < 1000; step++) {
        random = random * 1664525 + 1013904223;
        if (live.size() < 12 && random >> 30 != 0) {
            const block one = take(pool, 1 + (random >> 8) % (MIB / 2));
            const unsigned char mark = step % 251;
            cuda("cuMemsetD8_v2", pointer(one), mark, one.size);
            live.push_back({one, mark});
        } else if (!live.empty()) {
            const size_t chosen = random % 8 == 0 ? random / 8 % live.size() : live.size() - 1;
            const auto [one, mark] = live[chosen];
            live.erase(live.begin() + chosen);
            std::vector<unsigned char> bytes(one.size);
            cuda("cuMemcpyDtoH_v2", static_cast<void *>(bytes.data()), pointer(one), one.size);
            if (std::any_of(bytes.begin(), bytes.end(), [mark = mark](unsigned char byte) { return byte != mark; })) {
                printf("overlap at step %d\n", step);
                exit(73);
            }
            give(pool, one);
        }
    }
    for (const auto & [one, mark] : live) {
        give(pool, one);
    }
    pools->destroy(pool);
    printf("pattern kept\n");
}

static void again() {
    const size_t before = used();
    for (int round = 0; round < 5; round++) {
        void * first = pools->make();
        void * second = pools->make();
        ubatch(first, 4096);
        ubatch(second, 2048);
        pools->destroy(first);
        ubatch(second, 4096);
        pools->destroy(second);
    }
    printf("left %zu\n", used() - before);
}

static void cycles() {
    void * pool = pools->make();
    const size_t before = used();
    std::vector<size_t> after;
    for (int cycle = 0; cycle < 50; cycle++) {
        for (size_t depth = 2048; depth <= DEPTH; depth += 2048) {
            ubatch(pool, depth);
        }
        after.push_back(used() - before);
    }
    printf("first %zu\nlast %zu\nmost %zu\n", after.front(), after.back(), *std::max_element(after.begin(), after.end()));
    pools->destroy(pool);
}

// A stream is captured in which a block of 20 MiB is used by a kernel and given back.
static void * captured_use(void * pool, void * stream) {
    void * captured = nullptr;
    void * module = nullptr;
    void * kernel = nullptr;
    cuda("cuModuleLoadData", &module, static_cast<const void *>("image"));
    cuda("cuModuleGetFunction", &kernel, module, "touch");
    cuda("cuStreamBeginCapture_v2", stream, 2u);
    const block inside = take(pool, 20 * MIB);
    CUdeviceptr at = pointer(inside);
    unsigned long long size = inside.size;
    void * parameters[] = {&at, &size};
    cuda("cuLaunchKernel", kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, static_cast<void **>(parameters), static_cast<void **>(nullptr));
    give(pool, inside);
    cuda("cuStreamEndCapture", stream, &captured);
    return captured;
}

// A block is taken while a stream is captured; its pool is then grown, shrunk and emptied as far as it lets itself be, and the graph
// launched again.
static void graph() {
    void * pool = pools->make();
    void * stream = nullptr;
    void * exec = nullptr;
    cuda("cuStreamCreate", &stream, 1u);
    ubatch(pool, 512);
    void * captured = captured_use(pool, stream);
    give(pool, take(pool, 200 * MIB));
    cuda("cuGraphInstantiateWithFlags", &exec, captured, 0ull);
    cuda("cuGraphDestroy", captured);
    cuda("cuGraphLaunch", exec, stream);
    cuda("cuCtxSynchronize");
    const size_t with = used();
    // Asking for more than the card has makes guard give back what it may.
    CUdeviceptr too_much = 0;
    const int refused = driver<int (*)(CUdeviceptr *, size_t)>("cuMemAlloc_v2")(&too_much, size_t(1) << 40);
    printf("refused %d\nbefore %zu\nafter %zu\n", refused, with, used());
    cuda("cuGraphLaunch", exec, stream);
    cuda("cuCtxSynchronize");
    cuda("cuGraphExecDestroy", exec);
    driver<int (*)(CUdeviceptr *, size_t)>("cuMemAlloc_v2")(&too_much, size_t(1) << 40);
    printf("unpinned %zu\n", used());
    cuda("cuStreamDestroy_v2", stream);
    pools->destroy(pool);
}

// Says where it is and waits for a line, so that somebody outside can ask for what is idle.
static void stop() {
    printf("stopped %zu\n", used());
    fflush(stdout);
    getchar();
}

// 20 MiB that a live graph has seen, 200 MiB that are idle, and calls of each kind after every stop.
static void asked() {
    void * pool = pools->make();
    void * stream = nullptr;
    void * exec = nullptr;
    cuda("cuStreamCreate", &stream, 1u);
    void * captured = captured_use(pool, stream);
    cuda("cuGraphInstantiateWithFlags", &exec, captured, 0ull);
    cuda("cuGraphDestroy", captured);
    give(pool, take(pool, 200 * MIB));
    stop();
    // Inside a capture nothing may go, whatever is called.
    cuda("cuStreamBeginCapture_v2", stream, 2u);
    give(pool, take(pool, MIB));
    CUdeviceptr other = 0;
    cuda("cuMemAlloc_v2", &other, size_t(256));
    cuda("cuMemFree_v2", other);
    printf("captured %zu\n", used());
    cuda("cuStreamEndCapture", stream, &captured);
    cuda("cuGraphDestroy", captured);
    cuda("cuGraphLaunch", exec, stream);
    cuda("cuStreamSynchronize", stream);
    printf("replayed %zu\n", used());
    stop();
    // The pool's own methods are safe points too.
    give(pool, take(pool, 100 * MIB));
    printf("freed %zu\n", used());
    cuda("cuGraphLaunch", exec, stream);
    cuda("cuGraphExecDestroy", exec);
    stop();
    cuda("cuCtxSynchronize");
    printf("unpinned %zu\n", used());
    cuda("cuStreamDestroy_v2", stream);
    pools->destroy(pool);
}

// A pool ends while another stream is being captured.
static void ending() {
    const size_t before = used();
    void * stream = nullptr;
    void * captured = nullptr;
    void * pool = pools->make();
    ubatch(pool, 4096);
    cuda("cuStreamCreate", &stream, 1u);
    cuda("cuStreamBeginCapture_v2", stream, 2u);
    pools->destroy(pool);
    cuda("cuStreamEndCapture", stream, &captured);
    printf("left %zu\n", used() - before);
}

// The card has room for twice the live bytes and no more; what is idle must give way to the program's own requests.
static void pressure() {
    void * pool = pools->make();
    ubatch(pool, DEPTH);
    CUdeviceptr other = 0;
    const int refused = driver<int (*)(CUdeviceptr *, size_t)>("cuMemAlloc_v2")(&other, 300 * MIB);
    printf("other %d\n", refused);
    if (refused == 0) {
        cuda("cuMemFree_v2", other);
    }
    pools->destroy(pool);
}

// A caller that found alloc by the vtable and inlined free, and one that did the opposite.
static void half() {
    void * pool = pools->make();
    std::vector<block> ours;
    for (int i = 0; i < 20; i++) {
        const block one = take(pool, MIB);
        pools->release_inlined(pool, one.address, one.size);
        block other = {nullptr, 0};
        other.address = pools->alloc_inlined(pool, MIB / 2, &other.size);
        give(pool, other);
    }
    pools->destroy(pool);
    printf("survived yes\n");
}

static void never_freed() {
    void * pool = pools->make();
    for (int i = 0; i < 300; i++) {
        const block one = take(pool, 4096);
        cuda("cuMemsetD8_v2", pointer(one), static_cast<unsigned char>(7), one.size);
        pools->release_inlined(pool, one.address, one.size);
    }
    pools->destroy(pool);
    printf("survived yes\n");
}

// What is idle for some seconds goes, while the program goes on with less.
static void rest() {
    void * pool = pools->make();
    ubatch(pool, DEPTH);
    const size_t most = used();
    timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        for (int i = 0; i < 300; i++) {
            give(pool, take(pool, MIB));
        }
        const timespec pause = {0, 20000000};
        nanosleep(&pause, nullptr);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (used() == most && now.tv_sec - start.tv_sec < 30);
    printf("after %ld\ngone %zu\n", long(now.tv_sec - start.tv_sec), most - used());
    pools->destroy(pool);
}

// Ends without giving anything back.
static void leave() {
    void * pool = pools->make();
    ubatch(pool, 4096);
    take(pool, 3 * MIB);
    printf("left yes\n");
    exit(0);
}

static void * context;

// Threads with pools of their own, while the program asks for what it cannot have and others are captured.
static void threads() {
    std::vector<std::thread> all;
    for (int number = 0; number < 4; number++) {
        all.emplace_back([number] {
            cuda("cuCtxSetCurrent", context);
            void * stream = nullptr;
            cuda("cuStreamCreate", &stream, 1u);
            for (int round = 0; round < 20; round++) {
                void * pool = pools->make();
                void * captured = nullptr;
                std::vector<block> blocks;
                cuda("cuStreamBeginCapture_v2", stream, 2u);
                for (int i = 1; i < 8; i++) {
                    blocks.push_back(take(pool, size_t(i + number) * MIB / 2));
                }
                cuda("cuStreamEndCapture", stream, &captured);
                CUdeviceptr too_much = 0;
                driver<int (*)(CUdeviceptr *, size_t)>("cuMemAlloc_v2")(&too_much, size_t(1) << 40);
                for (const block & one : blocks) {
                    cuda("cuMemsetD8_v2", pointer(one), static_cast<unsigned char>(number), one.size);
                }
                for (const block & one : blocks) {
                    unsigned char ends[2];
                    cuda("cuMemcpyDtoH_v2", static_cast<void *>(ends), pointer(one), size_t(1));
                    cuda("cuMemcpyDtoH_v2", static_cast<void *>(ends + 1), pointer(one) + one.size - 1, size_t(1));
                    if (ends[0] != number || ends[1] != number) {
                        printf("overlap in thread %d\n", number);
                        exit(73);
                    }
                    give(pool, one);
                }
                cuda("cuGraphDestroy", captured);
                pools->destroy(pool);
            }
        });
    }
    for (std::thread & one : all) {
        one.join();
    }
    printf("kept yes\n");
}

#ifdef LOCAL
// The library is closed and opened again, at another place or the same.
static void reopen() {
    void * pool = pools->make();
    give(pool, take(pool, MIB));
    pools->destroy(pool);
    for (int round = 0; round < 3; round++) {
        dlclose(opened);
        printf("gone %d\n", dlopen(path, RTLD_NOW | RTLD_NOLOAD) == nullptr);
        pools = load();
        CUdeviceptr weights = 0;
        driver<int (*)(CUdeviceptr *, size_t)>("cuMemAlloc_v2")(&weights, 256);
        pool = pools->make();
        give(pool, take(pool, MIB));
        pools->destroy(pool);
    }
}
#endif

static void speed() {
    void * pool = pools->make();
    ubatch(pool, 4096);
    timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    const int rounds = 2000000;
    for (int i = 0; i < rounds; i++) {
        const block first = take(pool, 100000 + i % 7 * 1000);
        const block second = take(pool, 50000);
        give(pool, second);
        give(pool, first);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    const double seconds = double(end.tv_sec - start.tv_sec) + 1e-9 * double(end.tv_nsec - start.tv_nsec);
    printf("nanoseconds %.1f\n", seconds * 1e9 / rounds / 4);
    pools->destroy(pool);
}

int main(int count, char ** words) {
    if (count < 2) {
        return 64;
    }
#ifdef LOCAL
    path = words[2];
    pools = load();
#else
    pools = backend_functions();
#endif
    cuda("cuInit", 0u);
    cuda("cuDevicePrimaryCtxRetain", &context, 0);
    cuda("cuCtxSetCurrent", context);
    // The weights: what makes guard look for the pool.
    CUdeviceptr weights = 0;
    cuda("cuMemAlloc_v2", &weights, MIB);
    const std::string scenario = words[1];
    const std::pair<const char *, void (*)()> scenarios[] = {
        {"replay", replay},     {"grow", grow},         {"pattern", pattern}, {"again", again}, {"cycles", cycles},
        {"graph", graph},       {"half", half},       {"speed", speed}, {"never_freed", never_freed},
#ifdef LOCAL
        {"reopen", reopen},
#endif
        {"pressure", pressure}, {"ending", ending}, {"rest", rest},       {"leave", leave},   {"threads", threads},
        {"asked", asked},
    };
    for (const auto & [name, run] : scenarios) {
        if (scenario == name) {
            run();
            cuda("cuMemFree_v2", weights);
            return 0;
        }
    }
    return 65;
}
