/* An NVML that is there and does not work, as on Tegra (NOT_SUPPORTED), in a MIG container (NO_PERMISSION) or without a driver (INIT).
 * PyTorch asks for more functions with every release, and asserts that they exist; the rest is stood in for by their names:
 *   grep -ohE '\bnvml[A-Z]\w+ *\(' nvml.h | tr -d ' (' | sort -u | while read f; do grep -q "$f(" nvml_sick.c || echo "int $f(void) { return 3; }"; done > rest.c
 * Build: cc -shared -fPIC nvml_sick.c rest.c -o libnvidia-ml.so.1 -Wl,-soname,libnvidia-ml.so.1 */
#include <stdlib.h>
#include <string.h>

enum { OK = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, DRIVER_NOT_LOADED = 9 };

static int sickness(const char *kind) {
    const char *asked = getenv("NVML_SICK");
    return asked && strcmp(asked, kind) == 0;
}

int nvmlInit_v2(void) { return sickness("INIT") ? DRIVER_NOT_LOADED : OK; }
int nvmlInit(void) { return nvmlInit_v2(); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { (void)code; return "sick"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return nvmlInit_v2(); }

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) {
    (void)id;
    *device = (void *)0x1000;
    return nvmlInit_v2();
}

int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *processes) {
    (void)device, (void)count, (void)processes;
    return sickness("NO_PERMISSION") ? NO_PERMISSION : NOT_SUPPORTED;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, void *info) {
    (void)device, (void)link, (void)info;
    return NOT_SUPPORTED;
}
