/* Does what its arguments say, one act each, `ACT:NAME[:ARGUMENT]`, and prints what came of each on a line.
 *
 * A test of the ladder is a row of such acts and what they must print. Names are single letters; sizes are MiB. */
#include "cuda.h"

#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static struct { CUdeviceptr at; size_t size; CUmemGenericAllocationHandle handle; } blocks[26];
static CUstream streams[26];

static void pattern(unsigned char *bytes, size_t size, size_t from) {
    for (size_t i = 0; i < size; ++i) bytes[i] = (unsigned char)((from + i) * 2654435761u >> 13);
}

/* Writes a pattern into every byte, or compares. */
static const char *every_byte(CUdeviceptr at, size_t size, int write) {
    static unsigned char expected[3 * MIB], found[3 * MIB];
    for (size_t from = 0; from < size; from += sizeof expected) {
        size_t part = size - from < sizeof expected ? size - from : sizeof expected;
        pattern(expected, part, from);
        if (write) {
            if (cuMemcpyHtoD_v2(at + from, expected, part)) return "not written";
        } else {
            if (cuMemcpyDtoH_v2(found, at + from, part)) return "not read";
            if (memcmp(expected, found, part)) return "wrong";
        }
    }
    return write ? "written" : "right";
}

static void nap(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t size, int types) {
    CUmemAllocationProp prop = {1, types, {1, 0}, NULL, {0}};
    return cuMemCreate(handle, size, &prop, 0);
}

static void map(int name, int into, size_t offset) {
    CUmemAccessDesc access = {{1, 0}, 3};
    CUdeviceptr at = blocks[into].at + offset;
    CUresult mapped = cuMemMap(at, blocks[name].size, 0, blocks[name].handle, 0);
    printf("map %d", mapped);
    if (!mapped) printf(" access %d", cuMemSetAccess(at, blocks[name].size, &access, 1));
    printf("\n");
    if (!mapped) blocks[name].at = at;
}

static void attributes(CUdeviceptr at, CUdeviceptr base) {
    unsigned type = 0, managed = 9;
    int ordinal = -1;
    void *host = (void *)1, *context = NULL;
    CUdeviceptr start = 0, device = 0;
    size_t size = 0;
    int asked[] = {PTR_TYPE, PTR_MANAGED, PTR_ORDINAL, PTR_HOST, PTR_CONTEXT, PTR_START, PTR_SIZE, PTR_DEVICE};
    void *data[] = {&type, &managed, &ordinal, &host, &context, &start, &size, &device};
    CUresult many = cuPointerGetAttributes(8, asked, data, at);
    unsigned one = 0;
    CUresult single = cuPointerGetAttribute(&one, PTR_TYPE, at);
    CUresult no_host = cuPointerGetAttribute(&host, PTR_HOST, at);
    CUdeviceptr range = 0;
    size_t length = 0;
    CUresult whole = cuMemGetAddressRange_v2(&range, &length, at);
    printf("many %d type %u managed %u card %d host %s context %s start %s size %zu self %s; one %d type %u host %d; range %d %s %zu\n",
           many, type, managed, ordinal, host ? "some" : "none", context ? "some" : "none", start == base ? "base" : "else",
           size, device == at ? "yes" : "no", single, one, no_host, whole, range == base ? "base" : "else", length);
}

static void act(const char *step) {
    char verb[16] = "", name = 'a', argument[16] = "";
    sscanf(step, "%15[^:]:%c:%15s", verb, &name, argument);
    int n = name >= 'a' && name <= 'z' ? name - 'a' : 0;
    size_t size = strtoull(argument, NULL, 10) * MIB;
    if (strchr(argument, 'B')) size = strtoull(argument, NULL, 10);
    printf("%s ", step);
    if (!strcmp(verb, "alloc")) {
        blocks[n].size = size;
        printf("%d\n", cuMemAlloc_v2(&blocks[n].at, size));
    } else if (!strcmp(verb, "async")) {
        blocks[n].size = size;
        printf("%d\n", cuMemAllocAsync(&blocks[n].at, size, streams[0]));
    } else if (!strcmp(verb, "pitch")) { /* rows of 1000 bytes */
        size_t pitch = 0, rows = size / 1024;
        blocks[n].size = size;
        CUresult result = cuMemAllocPitch_v2(&blocks[n].at, &pitch, 1000, rows, 16);
        printf("%d %zu\n", result, pitch);
    } else if (!strcmp(verb, "free")) {
        printf("%d\n", cuMemFree_v2(blocks[n].at));
    } else if (!strcmp(verb, "freeasync")) {
        printf("%d\n", cuMemFreeAsync(blocks[n].at, streams[argument[0] - 'a']));
    } else if (!strcmp(verb, "write") || !strcmp(verb, "check")) {
        printf("%s\n", every_byte(blocks[n].at, blocks[n].size, verb[0] == 'w'));
    } else if (!strcmp(verb, "fill")) {
        printf("%d\n", cuMemsetD8_v2(blocks[n].at, 0x5a, blocks[n].size));
    } else if (!strcmp(verb, "stream")) {
        printf("%d\n", cuStreamCreate(&streams[n], 1));
    } else if (!strcmp(verb, "work")) {
        printf("%d\n", cuMemsetD8Async(blocks[n].at, 1, blocks[n].size, streams[argument[0] - 'a']));
    } else if (!strcmp(verb, "sync")) {
        printf("%d\n", cuCtxSynchronize());
    } else if (!strcmp(verb, "wait")) {
        printf("%d\n", cuStreamSynchronize(streams[n]));
    } else if (!strcmp(verb, "begin")) {
        printf("%d\n", cuStreamBeginCapture_v2(streams[n], argument[0] == 'g' ? 0 : 2));
    } else if (!strcmp(verb, "end")) {
        CUgraph graph = NULL;
        CUresult result = cuStreamEndCapture(streams[n], &graph);
        printf("%d %s\n", result, graph ? "graph" : "none");
    } else if (!strcmp(verb, "about")) {
        attributes(blocks[n].at + size, blocks[n].at);
    } else if (!strcmp(verb, "ipc")) {
        CUipcMemHandle handle;
        printf("%d\n", cuIpcGetMemHandle(&handle, blocks[n].at));
    } else if (!strcmp(verb, "advise")) {
        printf("%d\n", cuMemAdvise(blocks[n].at, blocks[n].size, 3, -1));
    } else if (!strcmp(verb, "prefetch")) {
        printf("%d\n", cuMemPrefetchAsync(blocks[n].at, blocks[n].size, 0, NULL));
    } else if (!strcmp(verb, "create")) {
        blocks[n].size = size;
        printf("%d\n", create(&blocks[n].handle, size, 0));
    } else if (!strcmp(verb, "release")) {
        printf("%d\n", cuMemRelease(blocks[n].handle));
    } else if (!strcmp(verb, "export")) {
        int fd = -1;
        printf("%d\n", cuMemExportToShareableHandle(&fd, blocks[n].handle, 1, 0));
    } else if (!strcmp(verb, "reserve")) {
        blocks[n].size = size;
        printf("%d\n", cuMemAddressReserve(&blocks[n].at, size, 0, 0, 0));
    } else if (!strcmp(verb, "unreserve")) {
        printf("%d\n", cuMemAddressFree(blocks[n].at, blocks[n].size));
    } else if (!strcmp(verb, "map")) { /* map:handle:INTO+OFFSET */
        map(n, argument[0] - 'a', strtoull(argument + 1, NULL, 10) * MIB);
    } else if (!strcmp(verb, "unmap")) {
        printf("%d\n", cuMemUnmap(blocks[n].at, blocks[n].size));
    } else if (!strcmp(verb, "free_memory")) {
        size_t left = 0, total = 0;
        cuMemGetInfo_v2(&left, &total);
        printf("%zu of %zu\n", left / MIB, total / MIB);
    } else if (!strcmp(verb, "reset")) {
        printf("%d\n", cuDevicePrimaryCtxReset_v2(0));
        start(0);
    } else if (!strcmp(verb, "nap")) {
        nap(strtol(argument, NULL, 10));
        printf("\n");
    } else {
        fprintf(stderr, "no such act: %s\n", step);
        exit(3);
    }
    fflush(stdout);
}

int main(int count, char **steps) {
    CUcontext context = start(0);
    (void)context;
    printf("pid %d\n", getpid());
    fflush(stdout);
    for (int i = 1; i < count; ++i) act(steps[i]);
    return 0;
}
