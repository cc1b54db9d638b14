/* Virtual memory management: addresses, physical memory, mappings. */
#include "hip.h"

#include <pthread.h>
#include <sys/mman.h>

enum { MOST = 1 << 14 };

/* hipMemAllocationProp. */
struct properties {
    int kind, handles;
    int location, id;
    void *windows;
    uint64_t flags;
};

/* Memory lives as long as a handle or a mapping of it; its handle is its number plus 1. */
static struct memory {
    size_t bytes;
    enum kind kind;
    int card, handles, mappings;
} memories[MOST];
static struct mapping {
    char *at;
    size_t bytes;
    int memory;
} mappings[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int located(const struct properties *properties) {
    /* hipMemLocationTypeDevice, and the host's, which ROCm 7 has. */
    int device = properties->location == 1 && properties->id >= 0 && properties->id < settings.cards;
    return settings.vmm && (device || (properties->location == 2 && settings.host_vmm));
}

EXPORT int hipMemGetAllocationGranularity(size_t *granule, const struct properties *properties, int option) {
    ENTER("hipMemGetAllocationGranularity");
    if (!located(properties)) return fail(settings.vmm ? INVALID_VALUE : NOT_SUPPORTED);
    *granule = settings.granule;
    return SUCCESS;
}

EXPORT int hipMemAddressReserve(void **base, size_t bytes, size_t alignment, void *hint, unsigned long long flags) {
    ENTER("hipMemAddressReserve");
    if (!settings.vmm) return fail(NOT_SUPPORTED);
    void *at = mmap(0, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return fail(OUT_OF_MEMORY);
    *base = at;
    return SUCCESS;
}

EXPORT int hipMemAddressFree(void *base, size_t bytes) {
    ENTER("hipMemAddressFree");
    return munmap(base, bytes) ? fail(INVALID_VALUE) : SUCCESS;
}

EXPORT int hipMemCreate(size_t *handle, size_t bytes, const struct properties *properties, unsigned long long flags) {
    ENTER("hipMemCreate");
    if (!located(properties)) return fail(settings.vmm ? INVALID_VALUE : NOT_SUPPORTED);
    if (!bytes || bytes % settings.granule) return fail(INVALID_VALUE);
    enum kind kind = properties->location == 1 ? DEVICE : HOST;
    int card = kind == DEVICE ? properties->id : current;
    if (!count(kind, card, bytes)) return fail(OUT_OF_MEMORY);
    pthread_mutex_lock(&lock);
    int free = 0;
    while (free < MOST && memories[free].bytes) free++;
    if (free < MOST) memories[free] = (struct memory){bytes, kind, card, 1, 0};
    pthread_mutex_unlock(&lock);
    if (free == MOST) return uncount(kind, card, bytes), fail(OUT_OF_MEMORY);
    *handle = free + 1;
    return SUCCESS;
}

/* With the lock held; bytes that the card gets back. */
static struct memory settled(int number) {
    struct memory memory = memories[number];
    if (memory.handles || memory.mappings) return (struct memory){0};
    memories[number].bytes = 0;
    return memory;
}

static int valid(size_t handle) {
    return handle > 0 && handle <= MOST && memories[handle - 1].bytes;
}

EXPORT int hipMemRelease(size_t handle) {
    ENTER("hipMemRelease");
    pthread_mutex_lock(&lock);
    int known = valid(handle) && memories[handle - 1].handles;
    struct memory gone = {0};
    if (known) {
        memories[handle - 1].handles--;
        gone = settled(handle - 1);
    }
    pthread_mutex_unlock(&lock);
    if (gone.bytes) uncount(gone.kind, gone.card, gone.bytes);
    return known ? SUCCESS : fail(INVALID_VALUE);
}

EXPORT int hipMemMap(char *at, size_t bytes, size_t offset, size_t handle, unsigned long long flags) {
    ENTER("hipMemMap");
    pthread_mutex_lock(&lock);
    int free = 0, fits = valid(handle) && memories[handle - 1].bytes == bytes;
    while (fits && free < MOST && mappings[free].bytes) free++;
    fits = fits && free < MOST && !mprotect(at, bytes, PROT_READ | PROT_WRITE);
    if (fits) {
        mappings[free] = (struct mapping){at, bytes, (int)handle - 1};
        memories[handle - 1].mappings++;
    }
    pthread_mutex_unlock(&lock);
    return fits ? SUCCESS : fail(INVALID_VALUE);
}

EXPORT int hipMemSetAccess(void *at, size_t bytes, const void *access, size_t count) {
    ENTER("hipMemSetAccess");
    return SUCCESS;
}

EXPORT int hipMemUnmap(char *at, size_t bytes) {
    ENTER("hipMemUnmap");
    int any = 0;
    for (int i = 0; i < MOST; i++) {
        pthread_mutex_lock(&lock);
        struct memory gone = {0};
        if (mappings[i].bytes && mappings[i].at >= at && mappings[i].at < at + bytes) {
            int number = mappings[i].memory;
            mmap(mappings[i].at, mappings[i].bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
            mappings[i].bytes = 0;
            memories[number].mappings--;
            gone = settled(number);
            any = 1;
        }
        pthread_mutex_unlock(&lock);
        if (gone.bytes) uncount(gone.kind, gone.card, gone.bytes);
    }
    return any ? SUCCESS : fail(INVALID_VALUE);
}

EXPORT int hipMemRetainAllocationHandle(size_t *handle, void *at) {
    ENTER("hipMemRetainAllocationHandle");
    pthread_mutex_lock(&lock);
    int found = -1;
    for (int i = 0; i < MOST && found < 0; i++)
        if (mappings[i].bytes && (char *)at >= mappings[i].at && (char *)at < mappings[i].at + mappings[i].bytes)
            found = mappings[i].memory;
    if (found >= 0) memories[found].handles++;
    pthread_mutex_unlock(&lock);
    if (found < 0) return fail(INVALID_VALUE);
    *handle = found + 1;
    return SUCCESS;
}
