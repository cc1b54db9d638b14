// What PyTorch 2.2 to 2.10 does when an allocation fails: it asks NVML who is on the card, and asserts that it is told.
// `torch DOOR PCI SIZE`: the result is `OutOfMemoryError` with the processes, or `INTERNAL ASSERT FAILED` with the question.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct { unsigned pid; unsigned long long used; } process;

static int (*nvmlInit)(void);
static int (*byBus)(const char *, void **);
static int (*running)(void *, unsigned *, process *);
static int (*memory)(void *, unsigned long long *);

static void expect(int code, const char *what) {
    if (code == 0) return;
    printf("INTERNAL ASSERT FAILED: %s gave %d\n", what, code);
    exit(1);
}

int main(int count, char **words) {
    (void)count;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
#define GET(library, variable, name) *(void **)&variable = dlsym(library, name)
    int (*init)(unsigned), (*retain)(void **, int), (*set)(void *), (*alloc)(uint64_t *, size_t), (*info)(size_t *, size_t *);
    GET(cuda, init, "cuInit");
    GET(cuda, retain, "cuDevicePrimaryCtxRetain");
    GET(cuda, set, "cuCtxSetCurrent");
    GET(cuda, alloc, "cuMemAlloc_v2");
    GET(cuda, info, "cuMemGetInfo_v2");
    void *context;
    uint64_t pointer;
    if (init(0) || retain(&context, 0) || set(context)) return 9;
    int code;
    while (!(code = alloc(&pointer, strtoull(words[3], NULL, 0)))) continue;
    if (code != 2) return 8;
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
    if (!nvml) return 7;
    GET(nvml, nvmlInit, "nvmlInit_v2");
    GET(nvml, byBus, "nvmlDeviceGetHandleByPciBusId_v2");
    GET(nvml, running, "nvmlDeviceGetComputeRunningProcesses");
    GET(nvml, memory, "nvmlDeviceGetMemoryInfo");
    expect(nvmlInit(), "init");
    void *device;
    expect(byBus(words[2], &device), "device");
    process some[64];
    unsigned room = 1, tries = 0;
    while ((code = running(device, &room, some)) == 7 && tries++ < 3) continue;
    expect(code, "processes");
    size_t free, total;
    info(&free, &total);
    printf("OutOfMemoryError: %zu of %zu\n", free, total);
    for (unsigned i = 0; i < room; i++)
        printf("%s %llu\n", some[i].pid == (unsigned)getpid() ? "this process" : "another", some[i].used);
    unsigned long long plain[3];
    if (!memory(device, plain)) printf("memory %llu %llu %llu\n", plain[0], plain[1], plain[2]);
    return 0;
}
