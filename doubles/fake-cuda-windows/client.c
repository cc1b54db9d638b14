/* Allocates 64 MiB at a time until it is refused: `client WAY [PROGRAM…]`. WAY is how it finds the driver: by
   its import table (`import`), `GetProcAddress` (`name`), `cuGetProcAddress` (`driver`) or the runtime
   (`runtime`). `none` allocates nothing, and prints its processor time so far. `spawn` starts the rest of the words as a child instead, `both` as two.
   It prints how many blocks it has, and holds them for HOLD_MS. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

typedef unsigned long long u64;
typedef int allocate(u64 *, size_t);
__declspec(dllimport) int cuMemAlloc_v2(u64 *, size_t);
__declspec(dllimport) int cuDevicePrimaryCtxRetain(void **, int);
__declspec(dllimport) int cudaMalloc(u64 *, size_t);

static allocate *found(const char *way) {
    HMODULE driver = LoadLibraryA("nvcuda.dll");
    if (!strcmp(way, "import")) return cuMemAlloc_v2;
    if (!strcmp(way, "runtime")) return cudaMalloc;
    if (!strcmp(way, "name")) return (allocate *)(void *)GetProcAddress(driver, "cuMemAlloc_v2");
    int (*find)(const char *, void **, int, u64, int *) = (void *)GetProcAddress(driver, "cuGetProcAddress_v2");
    void *function = 0;
    if (find) find("cuMemAlloc", &function, 12040, 0, 0);
    return (allocate *)function;
}

static int spawn(const char *line, int count) {
    HANDLE children[2];
    for (int i = 0; i < count; i++) {
        STARTUPINFOA startup = {.cb = sizeof startup};
        PROCESS_INFORMATION child;
        char copy[1024];
        snprintf(copy, sizeof copy, "%s", line);
        if (!CreateProcessA(0, copy, 0, 0, TRUE, 0, 0, 0, &startup, &child)) return 1;
        children[i] = child.hProcess;
    }
    WaitForMultipleObjects((DWORD)count, children, TRUE, INFINITE);
    return 0;
}

static int cost(void) {
    FILETIME begun, ended, kernel, user;
    if (!GetProcessTimes(GetCurrentProcess(), &begun, &ended, &kernel, &user)) return 1;
    /* In units of 100 ns. */
    u64 system = (u64)kernel.dwHighDateTime << 32 | kernel.dwLowDateTime;
    u64 own = (u64)user.dwHighDateTime << 32 | user.dwLowDateTime;
    printf("processor: %llu ms\n", (system + own) / 10000);
    return 0;
}

int main(int count, char **words) {
    if (count < 2) return 2;
    if (!strcmp(words[1], "none")) return cost();
    if (!strcmp(words[1], "spawn")) return spawn(strstr(GetCommandLineA(), "spawn") + 6, 1);
    if (!strcmp(words[1], "both")) return spawn(strstr(GetCommandLineA(), "both") + 5, 2);
    void *context;
    cuDevicePrimaryCtxRetain(&context, 0);
    allocate *one = found(words[1]);
    int blocks = 0, code = 0;
    u64 at;
    while (one && blocks < 1024 && !(code = one(&at, 64 << 20))) blocks++;
    printf("%s: %d blocks, then %d\n", words[1], blocks, code);
    fflush(stdout);
    const char *hold = getenv("HOLD_MS");
    Sleep(hold ? (DWORD)atoi(hold) : 0);
    return 0;
}
