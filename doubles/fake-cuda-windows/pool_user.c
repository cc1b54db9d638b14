/* A class with the name of ggml's pool and the type information of Microsoft's compiler, but with a method more.
   The program calls its methods and prints how often its own ran. */
#include <stdio.h>
#include <windows.h>

static int calls;
static void *own(void) { return calls++, &calls; }
void *(*const method)(void) = own;
__declspec(dllimport) int cuDevicePrimaryCtxRetain(void **, int);
__declspec(dllimport) int cuMemAlloc_v2(unsigned long long *, size_t);

/* The second argument of a method would be a size and the third a place for one; this one's take none. */
typedef void *call(void *object, size_t size, size_t *actual);
extern call *const table[4];
__asm__(".section .data\n"
        ".balign 8\n"
        "descriptor: .quad 0, 0\n"
        ".asciz \".?AUggml_cuda_pool_leg@@\"\n"
        ".section .rdata,\"dr\"\n"
        ".balign 8\n"
        "locator: .long 1, 0, 0\n"
        ".rva descriptor\n"
        ".long 0\n"
        ".rva locator\n"
        ".quad locator\n"
        ".globl table\n"
        "table: .quad own_method, own_method, own_method, own_method\n"
        ".text\n"
        "own_method: jmp *method(%rip)\n");

int main(void) {
    call *const *object = table;
    void *context;
    unsigned long long at;
    size_t actual;
    cuDevicePrimaryCtxRetain(&context, 0);
    cuMemAlloc_v2(&at, 1 << 20);
    for (int slot = 0; slot < 4; slot++) object[slot](&object, 1 << 20, &actual);
    printf("own methods: %d\n", calls);
    return 0;
}
