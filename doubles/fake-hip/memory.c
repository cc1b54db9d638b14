/* Blocks of device, managed and pinned memory, and the runtime's pools. */
#include "hip.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum { BLOCKS = 1 << 16, POOLS = 64 };

struct pool {
    int card, used_slot;
    size_t reserved, used;
};

static struct block {
    void *at;
    size_t bytes;
    enum kind kind;
    int card;
    struct pool *pool;
} blocks[BLOCKS];
static int last_block;
/* The first of them are the cards' own. */
static struct pool pools[POOLS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Addresses that take no memory until they are written to. */
static void *addresses(size_t bytes) {
    void *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? 0 : at;
}

static int keep(void **place, size_t bytes, enum kind kind, struct pool *pool) {
    void *at = addresses(bytes);
    pthread_mutex_lock(&lock);
    int full = last_block == BLOCKS || !at;
    if (!full) blocks[last_block++] = (struct block){at, bytes, kind, current, pool};
    pthread_mutex_unlock(&lock);
    if (full) return fail(OUT_OF_MEMORY);
    *place = at;
    return SUCCESS;
}

static int take(void **place, size_t bytes, enum kind kind) {
    if (!place) return fail(INVALID_VALUE);
    if (!bytes) return *place = 0, SUCCESS;
    if (!count(kind, current, bytes)) return fail(OUT_OF_MEMORY);
    int code = keep(place, bytes, kind, 0);
    if (code) uncount(kind, current, bytes);
    return code;
}

static int give(void *at) {
    if (!at) return SUCCESS;
    struct block found = {0};
    pthread_mutex_lock(&lock);
    for (int i = last_block - 1; i >= 0 && !found.at; i--)
        if (blocks[i].at == at) {
            found = blocks[i];
            blocks[i] = blocks[--last_block];
            if (found.pool) found.pool->used -= found.bytes;
        }
    pthread_mutex_unlock(&lock);
    if (!found.at) return fail(INVALID_VALUE);
    munmap(found.at, found.bytes);
    if (!found.pool) uncount(found.kind, found.card, found.bytes);
    return SUCCESS;
}

EXPORT int hipMalloc(void **place, size_t bytes) {
    ENTER("hipMalloc");
    return take(place, bytes, DEVICE);
}

EXPORT int hipExtMallocWithFlags(void **place, size_t bytes, unsigned flags) {
    ENTER("hipExtMallocWithFlags");
    return take(place, bytes, DEVICE);
}

EXPORT int hipMallocPitch(void **place, size_t *pitch, size_t width, size_t height) {
    ENTER("hipMallocPitch");
    *pitch = (width + 255) / 256 * 256;
    return take(place, *pitch * height, DEVICE);
}

EXPORT int hipMallocManaged(void **place, size_t bytes, unsigned flags) {
    ENTER("hipMallocManaged");
    return settings.managed ? take(place, bytes, MANAGED) : fail(NOT_SUPPORTED);
}

EXPORT int hipHostMalloc(void **place, size_t bytes, unsigned flags) {
    ENTER("hipHostMalloc");
    return take(place, bytes, HOST);
}

EXPORT int hipHostAlloc(void **place, size_t bytes, unsigned flags) {
    return hipHostMalloc(place, bytes, flags);
}

EXPORT int hipFree(void *at) {
    ENTER("hipFree");
    return give(at);
}

EXPORT int hipHostFree(void *at) {
    ENTER("hipHostFree");
    return give(at);
}

EXPORT int hipFreeHost(void *at) {
    return hipHostFree(at);
}

EXPORT int hipHostRegister(void *at, size_t bytes, unsigned flags) {
    ENTER("hipHostRegister");
    return SUCCESS;
}

EXPORT int hipHostUnregister(void *at) {
    ENTER("hipHostUnregister");
    return SUCCESS;
}

EXPORT int hipHostGetDevicePointer(void **device, void *host, unsigned flags) {
    *device = host;
    return SUCCESS;
}

EXPORT int hipMemAdvise(const void *at, size_t bytes, int advice, int device) {
    int managed = 0;
    called("hipMemAdvise");
    pthread_mutex_lock(&lock);
    for (int i = 0; i < last_block; i++) managed |= blocks[i].at == at && blocks[i].kind == MANAGED;
    pthread_mutex_unlock(&lock);
    return managed ? SUCCESS : fail(INVALID_VALUE);
}

EXPORT int hipMemGetInfo(size_t *free, size_t *total) {
    ENTER("hipMemGetInfo");
    if (free) *free = left(current);
    if (total) *total = settings.total[current];
    return SUCCESS;
}

EXPORT int hipDeviceGetDefaultMemPool(struct pool **pool, int card) {
    if (called("hipDeviceGetDefaultMemPool")) return UNKNOWN;
    if (card < 0 || card >= settings.cards) return fail(INVALID_DEVICE);
    if (!settings.pools) return fail(NOT_SUPPORTED);
    pools[card].card = card;
    pools[card].used_slot = 1;
    *pool = &pools[card];
    return SUCCESS;
}

EXPORT int hipDeviceGetMemPool(struct pool **pool, int card) {
    return hipDeviceGetDefaultMemPool(pool, card);
}

EXPORT int hipMemPoolCreate(struct pool **pool, const int *properties) {
    ENTER("hipMemPoolCreate");
    for (int i = CARDS; i < POOLS; i++)
        if (!pools[i].used_slot) {
            /* Kind, handle types, kind of location, its number. */
            pools[i] = (struct pool){.card = properties[3], .used_slot = 1};
            *pool = &pools[i];
            return SUCCESS;
        }
    return fail(OUT_OF_MEMORY);
}

EXPORT int hipMemPoolTrimTo(struct pool *pool, size_t keep) {
    ENTER("hipMemPoolTrimTo");
    size_t least = pool->used > keep ? pool->used : keep;
    size_t gone = pool->reserved > least ? pool->reserved - least : 0;
    pool->reserved -= gone;
    if (gone) uncount(DEVICE, pool->card, gone);
    return SUCCESS;
}

EXPORT int hipMemPoolDestroy(struct pool *pool) {
    ENTER("hipMemPoolDestroy");
    hipMemPoolTrimTo(pool, 0);
    pool->used_slot = 0;
    return SUCCESS;
}

EXPORT int hipMemPoolGetAttribute(struct pool *pool, int attribute, void *value) {
    /* hipMemPoolAttrReservedMemCurrent and hipMemPoolAttrUsedMemCurrent. */
    if (attribute != 5 && attribute != 7) return fail(INVALID_VALUE);
    *(uint64_t *)value = attribute == 5 ? pool->reserved : pool->used;
    return SUCCESS;
}

EXPORT int hipMallocFromPoolAsync(void **place, size_t bytes, struct pool *pool, void *stream) {
    ENTER("hipMallocFromPoolAsync");
    size_t idle = pool->reserved - pool->used, growth = bytes > idle ? bytes - idle : 0;
    if (growth && !count(DEVICE, pool->card, growth)) return fail(OUT_OF_MEMORY);
    pool->reserved += growth;
    int code = keep(place, bytes, DEVICE, pool);
    if (!code) pool->used += bytes;
    return code;
}

EXPORT int hipMallocAsync(void **place, size_t bytes, void *stream) {
    struct pool *pool;
    int code = hipDeviceGetDefaultMemPool(&pool, current);
    return code ? code : hipMallocFromPoolAsync(place, bytes, pool, stream);
}

EXPORT int hipFreeAsync(void *at, void *stream) {
    ENTER("hipFreeAsync");
    return give(at);
}

EXPORT int hipDeviceReset(void) {
    ENTER("hipDeviceReset");
    for (int i = last_block - 1; i >= 0; i--)
        if (blocks[i].card == current) give(blocks[i].at);
    return SUCCESS;
}
