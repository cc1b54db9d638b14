/* Has the names of the class, and nothing behind them that is like it. */
#include <stddef.h>

void _ZN18ggml_cuda_pool_leg5allocEmPm(void) {}
void _ZN18ggml_cuda_pool_leg4freeEPvm(void) {}
void _ZN18ggml_cuda_pool_legD0Ev(void) {}
void _ZN18ggml_cuda_pool_legD1Ev(void) {}
void * _ZTV18ggml_cuda_pool_leg[6] = {NULL, NULL, (void *) 1, (void *) 2, (void *) 3, (void *) 4};
