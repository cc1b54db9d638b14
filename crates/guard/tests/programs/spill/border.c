/* Every way to copy and to fill, across the border of a spilled range, compared byte by byte with the same done in host
 * memory. Arguments: MiB of the range, MiB of it that lie on the card, and MiB that are held meanwhile and then become the
 * head of a second range. */
#include "cuda.h"

#define MIB ((size_t)1 << 20)
#define SPAN ((size_t)192 * 1024)

static unsigned char expected[SPAN], found[SPAN], source[SPAN];
static CUdeviceptr at, other; /* SPAN bytes across the border, and SPAN bytes that are elsewhere */
static int failures;

static void clean(void) {
    memset(expected, 0, SPAN);
    MUST(cuMemcpyHtoD_v2(at, expected, SPAN / 2));
    MUST(cuMemcpyHtoD_v2(at + SPAN / 2, expected + SPAN / 2, SPAN / 2));
}

/* What is at the border must be what is expected; it is read in two halves, neither of which crosses. */
static void compare(const char *what, CUresult result) {
    cuCtxSynchronize();
    MUST(cuMemcpyDtoH_v2(found, at, SPAN / 2));
    MUST(cuMemcpyDtoH_v2(found + SPAN / 2, at + SPAN / 2, SPAN / 2));
    int right = !memcmp(expected, found, SPAN);
    failures += result || !right;
    printf("%s %d %s\n", what, result, right ? "right" : "wrong");
    clean();
}

static void read_back(const char *what, CUresult result, const unsigned char *wanted) {
    int right = !memcmp(wanted, found, SPAN);
    failures += result || !right;
    printf("%s %d %s\n", what, result, right ? "right" : "wrong");
    memset(found, 0, SPAN);
}

static void lines(CUstream stream) {
    memcpy(expected, source, SPAN);
    compare("cuMemcpyHtoD", cuMemcpyHtoD_v2(at, source, SPAN));
    memcpy(expected, source, SPAN);
    compare("cuMemcpyHtoDAsync", cuMemcpyHtoDAsync_v2(at, source, SPAN, stream));
    memcpy(expected, source, SPAN);
    compare("cuMemcpyDtoD", cuMemcpyDtoD_v2(at, other, SPAN));
    memcpy(expected, source, SPAN);
    compare("cuMemcpyDtoDAsync", cuMemcpyDtoDAsync_v2(at, other, SPAN, stream));
    memcpy(expected, source, SPAN);
    compare("cuMemcpy", cuMemcpy(at, other, SPAN));
    memcpy(expected, source, SPAN);
    compare("cuMemcpyAsync", cuMemcpyAsync(at, other, SPAN, stream));
    memset(expected + 1, 0x11, SPAN - 2);
    compare("cuMemsetD8", cuMemsetD8_v2(at + 1, 0x11, SPAN - 2));
    memset(expected + 2, 0x22, SPAN - 4);
    compare("cuMemsetD16", cuMemsetD16_v2(at + 2, 0x2222, SPAN / 2 - 2));
    memset(expected, 0x33, SPAN);
    compare("cuMemsetD32", cuMemsetD32_v2(at, 0x33333333, SPAN / 4));
    memset(expected, 0x44, SPAN);
    compare("cuMemsetD8Async", cuMemsetD8Async(at, 0x44, SPAN, stream));
    memset(expected, 0x55, SPAN);
    compare("cuMemsetD32Async", cuMemsetD32Async(at, 0x55555555, SPAN / 4, stream));
}

static void backwards(CUstream stream) {
    MUST(cuMemcpyHtoD_v2(at, source, SPAN));
    read_back("cuMemcpyDtoH", cuMemcpyDtoH_v2(found, at, SPAN), source);
    CUresult result = cuMemcpyDtoHAsync_v2(found, at, SPAN, stream);
    cuStreamSynchronize(stream);
    read_back("cuMemcpyDtoHAsync", result, source);
    clean();
}

/* Three copies, of which the second crosses, and the last has attributes of its own. */
static void batches(CUstream stream) {
    const size_t part = SPAN / 4;
    CUmemcpyAttributes kinds[2] = {{1, {0, 0}, {0, 0}, 0}, {3, {0, 0}, {0, 0}, 0}};
    CUdeviceptr to[3] = {at, at + part, at + 3 * part}, from[3] = {other, other + part, other + 3 * part};
    size_t sizes[3] = {part, 2 * part, part}, first[2] = {0, 2}, failed = 0;
    memcpy(expected, source, SPAN);
    compare("cuMemcpyBatchAsync", cuMemcpyBatchAsync(to, from, sizes, 3, kinds, first, 2, &failed, stream));
    failures += failed != SIZE_MAX;
    memcpy(expected, source, SPAN);
    compare("cuMemcpyBatchAsync_v2", cuMemcpyBatchAsync_v2(to, from, sizes, 3, kinds, first, 2, stream));
    sizes[2] = (size_t)1 << 40;
    memcpy(expected, source, 3 * part);
    CUresult result = cuMemcpyBatchAsync(to, from, sizes, 3, kinds, first, 2, &failed, stream);
    compare("a batch that fails", result == 1 && failed == 2 ? 0 : 1);
}

/* Rows of 700 bytes, 1000 apart: the border falls into a row, or between two, by where the plane begins. */
static void planes(CUstream stream) {
    for (size_t shift = 0; shift < 1000; shift += 250) {
        const size_t rows = 96, from = SPAN / 2 - 48 * 1000 - shift;
        CUDA_MEMCPY2D plane = {0};
        plane.srcMemoryType = HOST;
        plane.srcHost = source;
        plane.srcPitch = 800;
        plane.srcXInBytes = 3;
        plane.dstMemoryType = DEVICE;
        plane.dstDevice = at + from;
        plane.dstXInBytes = 5;
        plane.dstPitch = 1000;
        plane.WidthInBytes = 700;
        plane.Height = rows;
        for (int async = 0; async < 2; ++async) {
            for (size_t row = 0; row < rows; ++row)
                memcpy(expected + from + 5 + row * 1000, source + 3 + row * 800, 700);
            if (async)
                compare("cuMemcpy2DAsync", cuMemcpy2DAsync_v2(&plane, stream));
            else
                compare("cuMemcpy2D", cuMemcpy2D_v2(&plane));
        }
        for (size_t row = 0; row < rows; ++row) memset(expected + from + row * 1000, 0x66, 700);
        compare("cuMemsetD2D8", cuMemsetD2D8_v2(at + from, 1000, 0x66, 700, rows));
        const size_t word = (from + 3) / 4 * 4;
        for (size_t row = 0; row < rows; ++row) memset(expected + word + row * 1000, 0x77, 400);
        compare("cuMemsetD2D32", cuMemsetD2D32_v2(at + word, 1000, 0x77777777, 100, rows));
    }
}

/* Slices of 8 rows of 100 bytes, 128 apart and 10 rows high. */
static void solids(void) {
    for (size_t shift = 0; shift < 1280; shift += 160) {
        const size_t from = SPAN / 2 - 5 * 1280 - shift;
        CUDA_MEMCPY3D solid = {0};
        solid.srcMemoryType = HOST;
        solid.srcHost = source;
        solid.srcPitch = 100;
        solid.srcHeight = 8;
        solid.dstMemoryType = DEVICE;
        solid.dstDevice = at + from;
        solid.dstPitch = 128;
        solid.dstHeight = 10;
        solid.WidthInBytes = 100;
        solid.Height = 8;
        solid.Depth = 12;
        for (size_t z = 0; z < 12; ++z)
            for (size_t y = 0; y < 8; ++y)
                memcpy(expected + from + z * 1280 + y * 128, source + z * 800 + y * 100, 100);
        compare("cuMemcpy3D", cuMemcpy3D_v2(&solid));
    }
}

/* Two spilled ranges: a copy from the one to the other has two borders. */
static void between(CUdeviceptr from) {
    MUST(cuMemcpyHtoD_v2(from, source, SPAN));
    memcpy(expected, source, SPAN);
    compare("between ranges", cuMemcpyDtoD_v2(at, from, SPAN));
    MUST(cuMemcpyHtoD_v2(from - 4096, source, SPAN));
    memcpy(expected, source, SPAN);
    compare("between ranges, shifted", cuMemcpyDtoD_v2(at, from - 4096, SPAN));
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    size_t size = strtoull(arguments[1], NULL, 10) * MIB, head = strtoull(arguments[2], NULL, 10) * MIB;
    CUdeviceptr range, filler, second;
    size_t held = strtoull(arguments[3], NULL, 10) * MIB;
    CUstream stream;
    start(0);
    MUST(cuMemAlloc_v2(&other, SPAN));
    MUST(cuStreamCreate(&stream, 1));
    MUST(cuMemAlloc_v2(&filler, held));
    MUST(cuMemAlloc_v2(&range, size));
    at = range + head - SPAN / 2;
    for (size_t i = 0; i < SPAN; ++i) source[i] = (unsigned char)(i * 2654435761u >> 11);
    MUST(cuMemcpyHtoD_v2(other, source, SPAN));
    clean();
    lines(stream);
    backwards(stream);
    batches(stream);
    planes(stream);
    solids();
    MUST(cuMemFree_v2(filler));
    MUST(cuMemAlloc_v2(&second, size));
    between(second + held - SPAN / 2);
    MUST(cuMemFree_v2(second));
    MUST(cuMemFree_v2(range));
    printf("failures %d\n", failures);
    return failures != 0;
}
