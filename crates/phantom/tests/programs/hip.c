/* Asks the stand-in what ggml's HIP backend asks, and prints what it is answered.
   Usage: hip LIBRARY. Offsets are those of hipDeviceProp_tR0600 in hip_runtime_api.h 6.4.3. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int main(int arguments, char **words) {
    void *library = dlopen(words[1], RTLD_NOW);
    if (!library) return puts(dlerror()), 1;
    int (*count)(int *) = (void *)dlsym(library, "hipGetDeviceCount");
    int (*properties)(void *, int) = (void *)dlsym(library, "hipGetDevicePropertiesR0600");
    int (*attribute)(int *, int, int) = (void *)dlsym(library, "hipDeviceGetAttribute");
    int (*take)(void **, size_t) = (void *)dlsym(library, "hipMalloc");
    int (*give)(void *) = (void *)dlsym(library, "hipFree");
    int (*host)(void **, size_t, unsigned) = (void *)dlsym(library, "hipHostMalloc");
    int (*use)(int) = (void *)dlsym(library, "hipSetDevice");
    int (*left)(size_t *, size_t *) = (void *)dlsym(library, "hipMemGetInfo");
    int (*version)(char *, size_t) = (void *)dlsym(library, "rocblas_get_version_string");
    int cards = 0, status = count(&cards);
    printf("%d cards, status %d\n", cards, status);
    for (int n = 0; n < cards; n++) {
        unsigned char said[1480];
        memset(said, 0xee, sizeof said);
        status = properties(said, n);
        int lanes, processors, cooperative, virtual_memory;
        uint64_t total;
        memcpy(&total, said + 288, 8);
        memcpy(&lanes, said + 308, 4);
        memcpy(&processors, said + 388, 4);
        attribute(&cooperative, 10, n);
        attribute(&virtual_memory, 89, n);
        printf("%s %s, %d lanes, %d processors, %lu bytes, cooperative %d, virtual memory %d, end %02x\n", said, said + 1160, lanes, processors, (unsigned long)total, cooperative, virtual_memory, said[1472]);
    }
    printf("card 9: %d %d, nowhere %d\n", properties(words, 9), attribute(&cards, 10, 9), properties(0, 0));
    void *local = 0, *real = 0, *none = 0;
    size_t free = 0, total = 0;
    use(1);
    status = take(&local, 3ull << 30);
    left(&free, &total);
    printf("taken %d, free %lu of %lu\n", status, (unsigned long)free, (unsigned long)total);
    status = host(&real, 4096, 0);
    memset(real, 7, 4096);
    int large = take(&none, SIZE_MAX), first = give(local);
    printf("host %d, too large %d, given %d, again %d\n", status, large, first, give(local));
    char text[4] = {0};
    status = version(text, 1);
    printf("no room %d, version %d", status, version(text, sizeof text));
    printf(" %s\n", text);
    return 0;
}
