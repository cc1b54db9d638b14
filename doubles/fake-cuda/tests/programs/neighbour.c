/* A program that does what its input says, line by line, and answers each line with one: for tests in which several
 * processes share a card, and one of them dies.
 *   alloc MIB | free | info | share | open HEX | fork | touch | churn */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"

#define DECLARE(name, arguments) extern CUresult name arguments;
CUDA_FUNCTIONS(DECLARE)
extern CUresult cuIpcGetMemHandle(CUipcMemHandle *, CUdeviceptr);
extern CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *, CUipcMemHandle, unsigned);
extern CUresult cuIpcCloseMemHandle(CUdeviceptr);

static const size_t MIB = 1 << 20;
static CUdeviceptr memory;

static void allocate(size_t bytes) { printf("%d\n", cuMemAlloc_v2(&memory, bytes)); }

static void info(void) {
    size_t free_bytes, total;
    CHECK(cuMemGetInfo_v2(&free_bytes, &total));
    printf("%zu\n", free_bytes / MIB);
}

static void share(void) {
    CUipcMemHandle handle;
    CHECK(cuMemsetD8_v2(memory, 0x5a, 1));
    CHECK(cuIpcGetMemHandle(&handle, memory));
    for (size_t byte = 0; byte < sizeof handle; byte++)
        printf("%02x", (unsigned char)handle.reserved[byte]);
    puts("");
}

static void open_shared(const char *digits) {
    CUipcMemHandle handle;
    CUdeviceptr theirs;
    unsigned char found = 0;
    for (size_t byte = 0; byte < sizeof handle; byte++)
        sscanf(digits + 2 * byte, "%2hhx", (unsigned char *)&handle.reserved[byte]);
    CUresult code = cuIpcOpenMemHandle_v2(&theirs, handle, 1);
    if (code == 0) {
        CHECK(cuMemcpyDtoH_v2(&found, theirs, 1));
        EXPECT(1, cuMemFree_v2(theirs));
        CHECK(cuIpcCloseMemHandle(theirs));
    }
    printf("%d %02x\n", code, found);
}

/* What a forked child is told about CUDA. */
static void fork_child(void) {
    int code;
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr lost;
        _exit(cuMemAlloc_v2(&lost, MIB));
    }
    waitpid(child, &code, 0);
    printf("%d\n", WEXITSTATUS(code));
}

/* Follows a device pointer in host code, which must end the process. */
static void touch(void) { *(volatile char *)memory = 1; }

/* Allocates and frees until it is killed. */
static void churn(void) {
    puts("churning");
    for (;;) {
        CHECK(cuMemAlloc_v2(&memory, 100 * MIB));
        CHECK(cuMemFree_v2(memory));
    }
}

int main(void) {
    CUcontext context;
    char line[256];
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strncmp(line, "alloc ", 6) == 0)
            allocate(strtoull(line + 6, NULL, 10) * MIB);
        else if (strcmp(line, "free\n") == 0)
            printf("%d\n", cuMemFree_v2(memory));
        else if (strcmp(line, "info\n") == 0)
            info();
        else if (strcmp(line, "share\n") == 0)
            share();
        else if (strncmp(line, "open ", 5) == 0)
            open_shared(line + 5);
        else if (strcmp(line, "fork\n") == 0)
            fork_child();
        else if (strcmp(line, "touch\n") == 0)
            touch();
        else if (strcmp(line, "churn\n") == 0)
            churn();
    }
    return 0;
}
