/* What the test programs do with CUDA, whichever way they found its functions: each step prints a line, so that the
 * output bare and under a guard can be compared. */
#include <string.h>

static const size_t MIB = 1 << 20;

static void print_memory(const char *when) {
    size_t free_bytes, total;
    CHECK(cuMemGetInfo_v2(&free_bytes, &total));
    printf("%s: free %zu MiB of %zu MiB\n", when, free_bytes / MIB, total / MIB);
}

/* Writes and reads the ends of an allocation, and frees it. */
static void linear(size_t bytes) {
    CUdeviceptr memory;
    char text[] = "plimsoll", back[sizeof text] = "";
    CUresult code = cuMemAlloc_v2(&memory, bytes);
    printf("cuMemAlloc of %zu bytes: %d\n", bytes, code);
    if (code != 0)
        return;
    CHECK(cuMemsetD8_v2(memory, 7, bytes));
    CHECK(cuMemcpyHtoD_v2(memory + bytes - sizeof text, text, sizeof text));
    CHECK(cuMemcpyDtoH_v2(back, memory + bytes - sizeof text, sizeof text));
    printf("read back: %s\n", back);
    CHECK(cuMemcpyDtoH_v2(back, memory, 1));
    printf("filled with: %d\n", back[0]);
    print_memory("allocated");
    CHECK(cuMemFree_v2(memory));
    print_memory("freed");
}

/* One range, its first half on the device and its second in host memory. */
static void mixed(size_t half) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle device, host;
    CUdeviceptr range;
    char across[16] = "across the edge", back[16];

    CHECK(cuMemAddressReserve(&range, 2 * half, 0, 0, 0));
    CHECK(cuMemCreate(&device, half, &prop, 0));
    prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    CHECK(cuMemCreate(&host, half, &prop, 0));
    CHECK(cuMemMap(range, half, 0, device, 0));
    CHECK(cuMemMap(range + half, half, 0, host, 0));
    EXPECT(1, cuMemsetD8_v2(range, 1, 2 * half)); /* no access yet */
    CHECK(cuMemSetAccess(range, half, &access, 1));
    CHECK(cuMemSetAccess(range + half, half, &access, 1));
    CHECK(cuMemsetD8_v2(range, 1, 2 * half));
    CHECK(cuMemcpyHtoD_v2(range + half - 8, across, sizeof across));
    CHECK(cuMemcpyDtoH_v2(back, range + half - 8, sizeof back));
    printf("mixed range: %s\n", back);
    print_memory("mixed");
    CHECK(cuCtxSynchronize());
    CHECK(cuMemUnmap(range, 2 * half));
    CHECK(cuMemRelease(device));
    CHECK(cuMemRelease(host));
    CHECK(cuMemAddressFree(range, 2 * half));
}

/* A graph of one memset, launched twice. */
static void graph(void) {
    CUdeviceptr memory, refused;
    CUstream stream;
    CUgraph captured;
    CUgraphExec exec;
    unsigned char byte = 0;

    CHECK(cuMemAlloc_v2(&memory, 4 * MIB));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuMemsetD8Async(memory, 42, 4 * MIB, stream));
    CHECK(cuStreamEndCapture(stream, &captured));
    CHECK(cuGraphInstantiateWithFlags(&exec, captured, 0));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH_v2(&byte, memory, 1));
    printf("graph filled with: %d\n", byte);
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(captured));

    CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT(900, cuMemAlloc_v2(&refused, MIB));
    EXPECT(901, cuStreamEndCapture(stream, &captured));
    CHECK(cuStreamDestroy_v2(stream));
    CHECK(cuMemFree_v2(memory));
}

static void asynchronous(void) {
    CUdeviceptr memory;
    CUstream stream;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemAllocAsync(&memory, 3 * MIB, stream));
    CHECK(cuMemsetD8Async(memory, 1, 3 * MIB, stream));
    CHECK(cuMemFreeAsync(memory, stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuStreamDestroy_v2(stream));
    print_memory("asynchronous");
}

/* Sizes of linear allocations to try, in MiB, or "mixed", "graph", "async". */
static int life(int count, char **words) {
    CUdevice device;
    CUcontext context;
    int cards;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&cards));
    printf("cards: %d\n", cards);
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    print_memory("context");
    for (int word = 0; word < count; word++) {
        if (strcmp(words[word], "mixed") == 0)
            mixed(4 * MIB);
        else if (strcmp(words[word], "graph") == 0)
            graph();
        else if (strcmp(words[word], "async") == 0)
            asynchronous();
        else
            linear(strtoull(words[word], NULL, 10) * MIB);
    }
    CHECK(cuDevicePrimaryCtxRelease_v2(device));
    puts("done");
    return 0;
}
