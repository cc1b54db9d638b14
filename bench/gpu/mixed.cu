// What a real card does with a range that is device memory at its head and host memory at its tail.
//
// The guard's spill (crates/guard/src/spill) rests on behaviour that no document promises. This program measures it and prints
// one JSON object: which places a handle can have, whether copies, memsets, kernels, graphs and cuBLAS cross the border, what
// the driver says of such pointers, and what host memory costs to map and to read.
//
//   nvcc -O3 -std=c++17 -arch=native -o mixed mixed.cu -lcuda -ldl [-DWITH_CUBLAS -lcublas] && ./mixed [MiB] > mixed.json
//
// It takes three times MiB (default 1024) of host memory and twice of the card at most, and no managed memory beyond what
// is free on the card.

#include <cuda.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>
#ifdef WITH_CUBLAS
#include <cublas_v2.h>
#endif

namespace {

constexpr size_t kMiB = 1 << 20;
constexpr size_t kGranule = 2 * kMiB;

// ---- JSON, one flat object of "section.name": value --------------------------------------------------------------------------

std::string json;

void emit(const std::string &name, const std::string &value) {
    json += (json.empty() ? "{\n" : ",\n");
    json += "  \"" + name + "\": " + value;
}
void number(const std::string &name, double value) {
    char text[64];
    snprintf(text, sizeof text, "%.4g", value);
    emit(name, text);
}
void integer(const std::string &name, long long value) { emit(name, std::to_string(value)); }
void code(const std::string &name, CUresult result) { integer(name, result); }
void boolean(const std::string &name, bool value) { emit(name, value ? "true" : "false"); }
void text(const std::string &name, const std::string &value) { emit(name, "\"" + value + "\""); }

// Ends the program: what follows would mean nothing.
void must(CUresult result, const char *what) {
    if (result == CUDA_SUCCESS) return;
    const char *name = "?";
    cuGetErrorName(result, &name);
    fprintf(stderr, "mixed: %s failed: %s (%d)\n", what, name, result);
    exit(1);
}
#define MUST(call) must((call), #call)

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// ---- kernels -------------------------------------------------------------------------------------------------------------------

__global__ void fill(uint4 *words, size_t count, unsigned seed) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x)
        words[i] = make_uint4(unsigned(i) ^ seed, unsigned(i >> 32), seed, ~unsigned(i));
}

__global__ void verify(const uint4 *words, size_t count, unsigned seed, unsigned long long *wrong) {
    unsigned long long mine = 0;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x) {
        uint4 w = words[i];
        mine += w.x != (unsigned(i) ^ seed) || w.z != seed || w.w != ~unsigned(i);
    }
    if (mine) atomicAdd(wrong, mine);
}

__global__ void sum(const uint4 *words, size_t count, unsigned *out) {
    unsigned mine = 0;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x) {
        uint4 w = words[i];
        mine ^= w.x ^ w.y ^ w.z ^ w.w;
    }
    if (mine == 0x12345678) *out = mine;
}

__global__ void spin(long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {
    }
}

int blocks;
unsigned long long *wrong_count;
unsigned *sink;

bool holds(CUdeviceptr at, size_t bytes, unsigned seed, CUstream stream = nullptr) {
    unsigned long long wrong = 0;
    cuMemsetD8Async((CUdeviceptr)wrong_count, 0, sizeof wrong, stream);
    verify<<<blocks, 256, 0, stream>>>((const uint4 *)at, bytes / 16, seed, wrong_count);
    cuStreamSynchronize(stream);
    if (cuMemcpyDtoH(&wrong, (CUdeviceptr)wrong_count, sizeof wrong) != CUDA_SUCCESS) return false;
    return wrong == 0;
}

// ---- ranges --------------------------------------------------------------------------------------------------------------------

struct Range {
    CUdeviceptr base = 0;
    size_t head = 0, tail = 0;
    double map_seconds = 0;  // of the tail: create, map, access
    CUresult result = CUDA_SUCCESS;
    size_t size() const { return head + tail; }
};

CUmemAllocationProp prop(CUmemLocationType type, int id) {
    CUmemAllocationProp p = {};
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = type;
    p.location.id = id;
    return p;
}

CUresult attach(CUdeviceptr at, size_t bytes, CUmemLocationType type, int id, CUdevice device) {
    CUmemAllocationProp p = prop(type, id);
    CUmemGenericAllocationHandle handle;
    CUresult result = cuMemCreate(&handle, bytes, &p, 0);
    if (result != CUDA_SUCCESS) return result;
    result = cuMemMap(at, bytes, 0, handle, 0);
    cuMemRelease(handle);
    if (result != CUDA_SUCCESS) return result;
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemSetAccess(at, bytes, &access, 1);
}

Range mixed(size_t head, size_t tail, CUmemLocationType type, int id, CUdevice device) {
    Range r;
    r.head = head;
    r.tail = tail;
    r.result = cuMemAddressReserve(&r.base, head + tail, 0, 0, 0);
    if (r.result == CUDA_SUCCESS && head) r.result = attach(r.base, head, CU_MEM_LOCATION_TYPE_DEVICE, device, device);
    double start = now();
    if (r.result == CUDA_SUCCESS && tail) r.result = attach(r.base + head, tail, type, id, device);
    r.map_seconds = now() - start;
    return r;
}

double drop(const Range &r) {
    double start = now();
    if (r.head) cuMemUnmap(r.base, r.head);
    if (r.tail) cuMemUnmap(r.base + r.head, r.tail);
    cuMemAddressFree(r.base, r.size());
    return now() - start;
}

double kernel_read(CUdeviceptr at, size_t bytes) {  // GB/s, best of five
    CUevent start, stop;
    cuEventCreate(&start, 0);
    cuEventCreate(&stop, 0);
    float best = 1e30f;
    for (int i = 0; i < 5; ++i) {
        cuEventRecord(start, nullptr);
        sum<<<blocks, 256>>>((const uint4 *)at, bytes / 16, sink);
        cuEventRecord(stop, nullptr);
        cuEventSynchronize(stop);
        float ms = 1e30f;
        cuEventElapsedTime(&ms, start, stop);
        if (ms < best) best = ms;
    }
    cuEventDestroy(start);
    cuEventDestroy(stop);
    return double(bytes) / best / 1e6;
}

template <class Act>
double bandwidth(size_t bytes, Act act) {  // GB/s, best of five
    double best = 1e30;
    for (int i = 0; i < 5; ++i) {
        double start = now();
        act();
        cuCtxSynchronize();
        double took = now() - start;
        if (took < best) best = took;
    }
    return double(bytes) / best / 1e9;
}

// ---- items 1 to 8: one mixed range ---------------------------------------------------------------------------------------------

void copies(const std::string &p, const Range &r, CUstream stream) {
    const size_t span = 256 * 1024;  // half of it on each side of the border
    const CUdeviceptr at = r.base + r.head - span / 2;
    std::vector<unsigned char> out(span), in(span);
    for (size_t i = 0; i < span; ++i) out[i] = (unsigned char)(i * 31 + 7);
    auto back = [&] { return cuMemcpyDtoH(in.data(), at, span) == CUDA_SUCCESS && in == out; };
    auto clean = [&] {
        cuMemsetD8(at, 0, span / 2);
        cuMemsetD8(at + span / 2, 0, span / 2);
    };
    CUdeviceptr other;
    MUST(cuMemAlloc(&other, span));
    MUST(cuMemcpyHtoD(other, out.data(), span));

    clean();
    code(p + "HtoD", cuMemcpyHtoD(at, out.data(), span));
    boolean(p + "HtoD_and_DtoH_right", back());
    code(p + "DtoH", cuMemcpyDtoH(in.data(), at, span));
    clean();
    code(p + "DtoD_into", cuMemcpyDtoD(at, other, span));
    boolean(p + "DtoD_right", back());
    code(p + "DtoD_out_of", cuMemcpyDtoD(other, at, span));
    clean();
    code(p + "HtoDAsync", cuMemcpyHtoDAsync(at, out.data(), span, stream));
    cuStreamSynchronize(stream);
    boolean(p + "HtoDAsync_right", back());
    code(p + "DtoHAsync", cuMemcpyDtoHAsync(in.data(), at, span, stream));
    code(p + "DtoDAsync", cuMemcpyDtoDAsync(other, at, span, stream));
    code(p + "memcpy_unified", cuMemcpy(at, other, span));
    cuStreamSynchronize(stream);

    clean();
    CUDA_MEMCPY2D plane = {};
    plane.srcMemoryType = CU_MEMORYTYPE_HOST;
    plane.srcHost = out.data();
    plane.srcPitch = plane.dstPitch = plane.WidthInBytes = 1024;
    plane.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    plane.dstDevice = at;
    plane.Height = span / 1024;
    code(p + "2D", cuMemcpy2D(&plane));
    boolean(p + "2D_right", back());
    clean();
    code(p + "2DAsync", cuMemcpy2DAsync(&plane, stream));
    cuStreamSynchronize(stream);
    boolean(p + "2DAsync_right", back());

    code(p + "D8", cuMemsetD8(at, 0x5a, span));
    out.assign(span, 0x5a);
    boolean(p + "D8_right", back());
    code(p + "D32", cuMemsetD32(at, 0x6b6b6b6b, span / 4));
    out.assign(span, 0x6b);
    boolean(p + "D32_right", back());
    code(p + "D8Async", cuMemsetD8Async(at, 0x7c, span, stream));
    cuStreamSynchronize(stream);
    out.assign(span, 0x7c);
    boolean(p + "D8Async_right", back());
    code(p + "D2D8", cuMemsetD2D8(at, 1024, 0x3d, 1024, span / 1024));
    out.assign(span, 0x3d);
    boolean(p + "D2D8_right", back());
    cuMemFree(other);
}

void graph(const std::string &p, const Range &r, CUstream stream) {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUresult capture = cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CUresult memset = cuMemsetD8Async(r.base, 1, r.size(), stream);
    fill<<<blocks, 256, 0, stream>>>((uint4 *)r.base, r.size() / 16, 99);
    CUresult end = cuStreamEndCapture(stream, &graph);
    code(p + "capture_begin", capture);
    code(p + "capture_memset", memset);
    code(p + "capture_end", end);
    CUresult made = end == CUDA_SUCCESS ? cuGraphInstantiate(&exec, graph, 0) : end;
    code(p + "instantiate", made);
    if (made == CUDA_SUCCESS) {
        code(p + "replay", cuGraphLaunch(exec, stream));
        cuStreamSynchronize(stream);
        boolean(p + "replay_right", holds(r.base, r.size(), 99, stream));
        cuGraphExecDestroy(exec);
    }
    if (graph) cuGraphDestroy(graph);
}

void attributes(const std::string &p, const Range &r) {
    struct Part {
        const char *name;
        CUdeviceptr at;
    } parts[] = {{"head_", r.base + 4096}, {"tail_", r.base + r.head + 4096}};
    for (const Part &part : parts) {
        const std::string q = p + part.name;
        unsigned type = 0;
        code(q + "memory_type_code", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, part.at));
        integer(q + "memory_type", type);
        int ordinal = -1;
        code(q + "ordinal_code", cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, part.at));
        integer(q + "ordinal", ordinal);
        void *host = nullptr;
        code(q + "host_pointer_code", cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, part.at));
        boolean(q + "host_pointer_given", host != nullptr);
        unsigned managed = 9;
        code(q + "managed_code", cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, part.at));
        integer(q + "managed", managed);
        CUcontext context = nullptr;
        code(q + "context_code", cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, part.at));
        boolean(q + "context_given", context != nullptr);
        unsigned long long id = 0;
        code(q + "buffer_id_code", cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, part.at));
        integer(q + "buffer_id", (long long)id);
        CUdeviceptr base = 0;
        size_t size = 0;
        code(q + "address_range_code", cuMemGetAddressRange(&base, &size, part.at));
        boolean(q + "address_range_is_whole", base == r.base && size == r.size());
        integer(q + "address_range_size", (long long)size);
        CUipcMemHandle ipc;
        code(q + "ipc_code", cuIpcGetMemHandle(&ipc, part.at));
    }
    CUmemAccessDesc again = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    code(p + "set_access_over_both", cuMemSetAccess(r.base, r.size(), &again, 1));
    code(p + "unmap_over_both_then_nothing_is_left", cuMemUnmap(r.base, r.size()));
}

void gemm(const std::string &p, const Range &r) {
#ifdef WITH_CUBLAS
    // C = A * B with A across the border, all ones: every element of C is n.
    const int n = 2048;
    const size_t bytes = size_t(n) * n * sizeof(float);
    if (r.head < bytes || r.tail < bytes) return;
    CUdeviceptr a = r.base + r.head - bytes / 2, b, c;
    const float one = 1, zero = 0;
    unsigned bits;
    memcpy(&bits, &one, 4);
    MUST(cuMemAlloc(&b, bytes));
    MUST(cuMemAlloc(&c, bytes));
    cuMemsetD32(a, bits, bytes / 8);
    cuMemsetD32(a + bytes / 2, bits, bytes / 8);
    cuMemsetD32(b, bits, bytes / 4);
    cublasHandle_t handle;
    integer(p + "cublas_create", cublasCreate(&handle));
    integer(p + "cublas_gemm", cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, (float *)a, n, (float *)b, n,
                                           &zero, (float *)c, n));
    std::vector<float> out(size_t(n) * n);
    cuMemcpyDtoH(out.data(), c, bytes);
    bool right = true;
    for (float x : out) right = right && x == float(n);
    boolean(p + "cublas_right", right);
    cublasDestroy(handle);
    cuMemFree(b);
    cuMemFree(c);
#else
    (void)p;
    (void)r;
#endif
}

void peers(const std::string &p, const Range &r, CUdevice device) {
    int devices = 0;
    cuDeviceGetCount(&devices);
    integer(p + "devices", devices);
    if (devices < 2) return;
    CUdevice other = device == 0 ? 1 : 0;
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, other}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    code(p + "peer_access_to_head", cuMemSetAccess(r.base, r.head, &access, 1));
    code(p + "peer_access_to_tail", cuMemSetAccess(r.base + r.head, r.tail, &access, 1));
}

// Item 10: another range is made and unmade while a kernel runs on the first.
void while_busy(const std::string &p, const Range &r, CUmemLocationType type, int id, CUdevice device, CUstream stream) {
    spin<<<1, 1, 0, stream>>>(400'000'000LL);
    fill<<<blocks, 256, 0, stream>>>((uint4 *)r.base, r.size() / 16, 5);
    double start = now();
    Range second = mixed(64 * kMiB, 64 * kMiB, type, id, device);
    double took = now() - start;
    code(p + "map_while_busy", second.result);
    number(p + "map_while_busy_ms", took * 1e3);
    boolean(p + "map_did_not_wait_for_the_kernel", cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
    drop(second);
    cuStreamSynchronize(stream);
    boolean(p + "busy_right", holds(r.base, r.size(), 5, stream));
}

void place(const char *name, CUmemLocationType type, int id, CUdevice device, size_t bytes) {
    const std::string p = std::string(name) + ".";
    Range r = mixed(64 * kMiB, 64 * kMiB, type, id, device);
    code(p + "made", r.result);
    if (r.result != CUDA_SUCCESS) return;
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    fill<<<blocks, 256, 0, stream>>>((uint4 *)r.base, r.size() / 16, 42);
    code(p + "kernel_writes_both", cuStreamSynchronize(stream));
    boolean(p + "kernel_reads_both_right", holds(r.base, r.size(), 42, stream));
    copies(p, r, stream);
    graph(p, r, stream);
    gemm(p, r);
    peers(p, r, device);
    while_busy(p, r, type, id, device, stream);
    attributes(p, r);  // unmaps it
    cuMemAddressFree(r.base, r.size());
    cuStreamDestroy(stream);

    Range all = mixed(0, bytes, type, id, device);
    code(p + "tail_only", all.result);
    if (all.result != CUDA_SUCCESS) return;
    const double gib = double(bytes) / (1 << 30);
    number(p + "map_ms_per_GiB", all.map_seconds * 1e3 / gib);
    fill<<<blocks, 256>>>((uint4 *)all.base, bytes / 16, 1);
    cuCtxSynchronize();
    number(p + "kernel_read_GBps", kernel_read(all.base, bytes));
    CUdeviceptr device_copy;
    if (cuMemAlloc(&device_copy, bytes) == CUDA_SUCCESS) {
        number(p + "copy_to_device_GBps", bandwidth(bytes, [&] { cuMemcpyDtoD(device_copy, all.base, bytes); }));
        number(p + "copy_from_device_GBps", bandwidth(bytes, [&] { cuMemcpyDtoD(all.base, device_copy, bytes); }));
        cuMemFree(device_copy);
    }
    number(p + "unmap_ms_per_GiB", drop(all) * 1e3 / gib);
}

// ---- what it is compared with --------------------------------------------------------------------------------------------------

void pinned(size_t bytes) {
    double start = now();
    void *host;
    CUresult made = cuMemHostAlloc(&host, bytes, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
    code("pinned.made", made);
    if (made != CUDA_SUCCESS) return;
    number("pinned.alloc_ms_per_GiB", (now() - start) * 1e3 / (double(bytes) / (1 << 30)));
    CUdeviceptr seen = 0;
    cuMemHostGetDevicePointer(&seen, host, 0);
    boolean("pinned.same_pointer", seen == (CUdeviceptr)host);
    number("pinned.kernel_read_GBps", kernel_read(seen, bytes));
    CUdeviceptr device;
    MUST(cuMemAlloc(&device, bytes));
    number("pinned.memcpy_HtoD_GBps", bandwidth(bytes, [&] { cuMemcpyHtoD(device, host, bytes); }));
    number("pinned.memcpy_DtoH_GBps", bandwidth(bytes, [&] { cuMemcpyDtoH(host, device, bytes); }));
    number("device.kernel_read_GBps", kernel_read(device, bytes));
    cuMemFree(device);
    cuMemFreeHost(host);
}

CUresult advise(CUdeviceptr at, size_t bytes, CUmem_advise what, CUdevice device) {
#if CUDA_VERSION >= 13000
    CUmemLocation where = {device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE, device};
    return cuMemAdvise(at, bytes, what, where);
#else
    return cuMemAdvise(at, bytes, what, device);
#endif
}

void managed(size_t bytes, CUdevice device) {
    size_t free = 0, total = 0;
    int concurrent = 0;
    cuMemGetInfo(&free, &total);
    cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device);
    integer("managed.concurrent", concurrent);
    if (!concurrent || bytes > free) return;
    CUdeviceptr at;
    CUresult made = cuMemAllocManaged(&at, bytes, CU_MEM_ATTACH_GLOBAL);
    code("managed.made", made);
    if (made != CUDA_SUCCESS) return;
    code("managed.prefer_host", advise(at, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
    code("managed.accessed_by", advise(at, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, device));
    double start = now();
    memset((void *)at, 1, bytes);
    number("managed.first_touch_ms_per_GiB", (now() - start) * 1e3 / (double(bytes) / (1 << 30)));
    number("managed.kernel_read_GBps", kernel_read(at, bytes));
    cuMemFree(at);
}

// Item 9: does cuGetProcAddress give what dlsym gives?
void doors() {
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    struct Name {
        const char *asked, *exported;
    } names[] = {{"cuMemAlloc", "cuMemAlloc_v2"},       {"cuMemFree", "cuMemFree_v2"},
                 {"cuMemGetInfo", "cuMemGetInfo_v2"},   {"cuMemAllocAsync", "cuMemAllocAsync"},
                 {"cuMemCreate", "cuMemCreate"},        {"cuMemcpyHtoD", "cuMemcpyHtoD_v2"},
                 {"cuMemcpyAsync", "cuMemcpyAsync"},    {"cuMemsetD8", "cuMemsetD8_v2"},
                 {"cuDeviceTotalMem", "cuDeviceTotalMem_v2"}, {"cuStreamBeginCapture", "cuStreamBeginCapture_v2"}};
    int same = 0, count = 0;
    std::string differing;
    for (const Name &name : names) {
        void *asked = nullptr;
        CUdriverProcAddressQueryResult found;
        if (cuGetProcAddress(name.asked, &asked, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &found) != CUDA_SUCCESS) continue;
        ++count;
        if (asked == dlsym(library, name.exported))
            ++same;
        else
            differing += std::string(differing.empty() ? "" : " ") + name.asked;
    }
    integer("doors.asked", count);
    integer("doors.same_pointer", same);
    text("doors.differing", differing);
}

}  // namespace

int main(int argc, char **argv) {
    size_t bytes = (argc > 1 ? strtoull(argv[1], nullptr, 10) : 1024) * kMiB;
    bytes = (bytes + kGranule - 1) / kGranule * kGranule;
    MUST(cuInit(0));
    CUdevice device;
    CUcontext context;
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    char name[128] = "?";
    int version = 0, node = -1, processors = 1;
    cuDeviceGetName(name, sizeof name, device);
    cuDriverGetVersion(&version);
    cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device);
    cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    blocks = processors * 8;
    MUST(cuMemAlloc((CUdeviceptr *)&wrong_count, 256));
    MUST(cuMemAlloc((CUdeviceptr *)&sink, 256));
    size_t free = 0, total = 0;
    MUST(cuMemGetInfo(&free, &total));
    text("card", name);
    integer("driver", version);
    integer("host_numa_id", node);
    integer("free_MiB", (long long)(free / kMiB));
    for (int option = 0; option < 2; ++option) {
        CUmemAllocationProp p = prop(CU_MEM_LOCATION_TYPE_DEVICE, device);
        size_t granule = 0;
        cuMemGetAllocationGranularity(&granule, &p, (CUmemAllocationGranularity_flags)option);
        integer(option ? "granule_recommended" : "granule_minimum", (long long)granule);
    }
    if (node >= 0) place("host_numa", CU_MEM_LOCATION_TYPE_HOST_NUMA, node, device, bytes);
    place("host", CU_MEM_LOCATION_TYPE_HOST, 0, device, bytes);
    pinned(bytes);
    managed(bytes, device);
    doors();
    printf("%s\n}\n", json.c_str());
    return 0;
}
