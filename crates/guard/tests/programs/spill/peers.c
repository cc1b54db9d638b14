/* A card uses the spilled memory of another, its peer: what was there before they became peers, and what came after.
 * Argument: MiB of a block. */
#include "cuda.h"

int main(int count, char **arguments) {
    if (count != 2) return 2;
    size_t size = strtoull(arguments[1], NULL, 10) << 20;
    CUdeviceptr before, after;
    CUcontext first = start(0);
    MUST(cuMemAlloc_v2(&before, size));
    CUcontext second = start(1);
    printf("stranger %d\n", cuMemsetD8_v2(before, 1, size));
    MUST(cuCtxEnablePeerAccess(first, 0));
    printf("before %d\n", cuMemsetD8_v2(before, 1, size));
    MUST(cuCtxSetCurrent(first));
    MUST(cuMemAlloc_v2(&after, size));
    MUST(cuCtxSetCurrent(second));
    printf("after %d\n", cuMemsetD8_v2(after, 1, size));
    MUST(cuCtxSetCurrent(first));
    MUST(cuMemFree_v2(before));
    MUST(cuMemFree_v2(after));
    return 0;
}
