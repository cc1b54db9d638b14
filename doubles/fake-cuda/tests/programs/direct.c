/* A program that imports the driver's functions as an ELF object does: linked with -lcuda. */
#include "cuda.h"

#define DECLARE(name, arguments) extern CUresult name arguments;
CUDA_FUNCTIONS(DECLARE)

#include "life.h"

int main(int count, char **words) { return life(count - 1, words + 1); }
