/* Conversations in four slots over weights and a KV cache, as an engine computes them: rows of the cache are written, kernels and replayed
 * graphs change bytes of weights and rows, and every wait is a chance for guard to exchange memory. A copy on the host says what each byte
 * must be.
 *
 * Arguments: offset of the depths on guard's page, offset of their report, conversations, seed, and `second` for a second thread. */
#include "cuda.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define SLOTS 4
#define POSITIONS 16384
#define TENSORS 4
#define ROW 512
#define WEIGHTS (60 * MIB + 1000)
#define STREAM_BYTES ((size_t)POSITIONS * ROW)
#define CACHE (TENSORS * SLOTS * STREAM_BYTES)
#define TOUCHED 4096
#define MOST 1500

static CUdeviceptr weights, cache, scratch;
static unsigned char *of_weights, *of_cache, rows[TENSORS][MOST * ROW], found[STREAM_BYTES];
static CUstream stream, second;
static CUfunction touch;
static CUgraphExec graphs[SLOTS];
static unsigned used[SLOTS], target[SLOTS], depths[SLOTS], reports;
static int page = -1;
static long depths_at, reports_at;
static uint64_t state;

static unsigned below(unsigned bound) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((state >> 33) % bound);
}

static size_t row(int tensor, int slot, unsigned position) {
    return ((size_t)tensor * SLOTS + slot) * STREAM_BYTES + (size_t)position * ROW;
}

static void launch_in(CUstream in, CUdeviceptr at, size_t count) {
    uint64_t length = count;
    void *arguments[] = {&at, &length};
    MUST(cuLaunchKernel(touch, 16, 1, 1, 256, 1, 1, 0, in, arguments, NULL));
}

static void launch(CUdeviceptr at, size_t count) { launch_in(stream, at, count); }

static void touched(unsigned char *bytes) {
    for (size_t i = 0; i < TOUCHED; ++i) ++bytes[i];
}

/* The last weights are left to the second stream, whose work goes on while the program waits for the first. */
#define OF_SECOND (WEIGHTS - 2 * TOUCHED)

/* The places of a slot's graph: some weights, and rows that a short conversation leaves unused. */
static size_t place_of_weights(int slot, int number) { return (size_t)(slot * 8 + number) * 1913 * 1024 % (OF_SECOND - TOUCHED); }

static void capture(int slot) {
    CUgraph graph;
    MUST(cuStreamBeginCapture_v2(stream, 2));
    for (int number = 0; number < 8; ++number) launch(weights + place_of_weights(slot, number), TOUCHED);
    launch(cache + row(1, slot, 5000), TOUCHED);
    MUST(cuMemcpyDtoDAsync_v2(cache + row(2, slot, 9000), weights + place_of_weights(slot, 3), TOUCHED, stream));
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiateWithFlags(&graphs[slot], graph, 0));
}

static void replay(int slot) {
    MUST(cuGraphLaunch(graphs[slot], stream));
    for (int number = 0; number < 8; ++number) touched(of_weights + place_of_weights(slot, number));
    touched(of_cache + row(1, slot, 5000));
    memcpy(of_cache + row(2, slot, 9000), of_weights + place_of_weights(slot, 3), TOUCHED);
}

static int differs(CUdeviceptr at, const unsigned char *expected, size_t size) {
    for (size_t from = 0; from < size; from += sizeof found) {
        size_t part = size - from < sizeof found ? size - from : sizeof found;
        MUST(cuMemcpyDtoH_v2(found, at + from, part));
        if (memcmp(found, expected + from, part)) return 1;
    }
    return 0;
}

static void compare(const char *what, CUdeviceptr at, const unsigned char *expected, size_t size) {
    if (!differs(at, expected, size)) return;
    printf("%s are wrong\n", what);
    exit(1);
}

static void report(void) {
    if (page < 0) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%d.page", getenv("PLIMSOLL_GUARD_PAGES"), getpid());
        page = open(path, O_RDWR);
    }
    ++reports;
    if (pwrite(page, depths, sizeof depths, depths_at) < 0 || pwrite(page, &reports, sizeof reports, reports_at) < 0) exit(2);
}

/* One batch of tokens of a slot. */
static void turn(int slot) {
    unsigned count = 1 + below(MOST);
    if (count > target[slot] - used[slot]) count = target[slot] - used[slot];
    depths[slot] = used[slot] + count + below(300);
    report();
    for (int tensor = 0; tensor < TENSORS; ++tensor) {
        size_t at = row(tensor, slot, used[slot]), size = (size_t)count * ROW;
        memset(rows[tensor], (int)below(256), size);
        rows[tensor][size / 2] = (unsigned char)below(256);
        MUST(cuMemcpyHtoDAsync_v2(cache + at, rows[tensor], size, stream));
        memcpy(of_cache + at, rows[tensor], size);
    }
    used[slot] += count;
    if (below(2)) replay(slot);
    size_t read = row((int)below(TENSORS), slot, below(used[slot]));
    if (read + TOUCHED > CACHE) read = CACHE - TOUCHED;
    launch(cache + read, TOUCHED);
    touched(of_cache + read);
    MUST(cuStreamSynchronize(second));
    launch_in(second, weights + OF_SECOND, TOUCHED);
    touched(of_weights + OF_SECOND);
    MUST(cuStreamSynchronize(stream));
    size_t look = below(OF_SECOND - TOUCHED);
    compare("weights", weights + look, of_weights + look, TOUCHED);
    compare("rows", cache + read, of_cache + read, TOUCHED);
}

static void *wait_once(void *context) {
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamSynchronize(NULL));
    return NULL;
}

static void fill(CUdeviceptr at, unsigned char *bytes, size_t size) {
    for (size_t i = 0; i < size; ++i) bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    MUST(cuMemcpyHtoD_v2(at, bytes, size));
}

static void prepare(CUcontext context, int threads) {
    CUmodule module;
    of_weights = malloc(WEIGHTS);
    of_cache = malloc(CACHE);
    MUST(cuMemAlloc_v2(&weights, WEIGHTS));
    fill(weights, of_weights, WEIGHTS);
    MUST(cuMemAlloc_v2(&cache, CACHE));
    fill(cache, of_cache, CACHE);
    MUST(cuMemAlloc_v2(&scratch, 8 * MIB));
    MUST(cuStreamCreate(&stream, 1));
    MUST(cuStreamCreate(&second, 1));
    MUST(cuModuleLoadData(&module, ""));
    MUST(cuModuleGetFunction(&touch, module, "touch"));
    for (int slot = 0; slot < SLOTS; ++slot) capture(slot);
    MUST(cuStreamSynchronize(stream));
    if (threads > 1) {
        pthread_t thread;
        pthread_create(&thread, NULL, wait_once, context);
        pthread_join(thread, NULL);
    }
}

int main(int count, char **arguments) {
    CUcontext context = start(0);
    if (count < 5) return 3;
    depths_at = atol(arguments[1]);
    reports_at = atol(arguments[2]);
    int left = atoi(arguments[3]);
    state = strtoull(arguments[4], NULL, 10);
    printf("pid %d\n", getpid());
    fflush(stdout);
    prepare(context, count > 5 && !strcmp(arguments[5], "second") ? 2 : 1);
    for (int active = 0; left > 0 || active > 0;) {
        int slot = (int)below(SLOTS);
        if (used[slot] == target[slot]) {
            if (left == 0) {
                active = 0;
                for (int other = 0; other < SLOTS; ++other) active += used[other] < target[other];
                continue;
            }
            --left;
            used[slot] = 0;
            target[slot] = 500 + below(POSITIONS - 500);
        }
        active = 1;
        turn(slot);
        if (used[slot] == target[slot]) {
            if (below(4) == 0) compare("rows of a conversation", cache + row(1, slot, 0), of_cache + row(1, slot, 0), used[slot] * (size_t)ROW);
            depths[slot] = 0;
            report();
        }
    }
    MUST(cuStreamSynchronize(second));
    compare("weights at the end", weights, of_weights, WEIGHTS);
    compare("the cache at the end", cache, of_cache, CACHE);
    printf("all right\n");
    MUST(cuMemFree_v2(cache));
    MUST(cuMemFree_v2(weights));
    MUST(cuMemFree_v2(scratch));
    return 0;
}
