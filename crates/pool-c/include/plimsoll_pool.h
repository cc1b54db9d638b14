/* Plimsoll's pool for engines in C and C++.
 *
 * The engine fills in a plimsoll_device with the calls that it makes to its driver, and asks the pool for memory instead
 * of the driver. What is reserved stays close to what is live; nothing goes back to the driver while the card may use it
 * or a graph has seen it. Addresses are numbers: the pool never touches the memory.
 *
 * A pool may be used by several threads; calls wait for each other, and callbacks are made with the pool locked: they
 * must not call the pool. Structures begin with their size, so that an older engine runs with a newer library.
 */
#ifndef PLIMSOLL_POOL_H
#define PLIMSOLL_POOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plimsoll_pool plimsoll_pool;

typedef int32_t plimsoll_status;
enum {
    PLIMSOLL_OK = 0,
    /* The card, or the budget, has not got that much; see plimsoll_pool_stats. */
    PLIMSOLL_OUT_OF_MEMORY = 1,
    /* A pointer is null, or a size is 0 or not that of the structure. */
    PLIMSOLL_INVALID_ARGUMENT = 2,
    /* A callback that is needed is missing, or the granule is not a power of two. */
    PLIMSOLL_INVALID_DEVICE = 3,
    /* The address is not that of a live block of this pool. */
    PLIMSOLL_NOT_LIVE = 4
};

/* What the pool may do with the card. Calls that return int return 0 for success. */
typedef struct plimsoll_device {
    size_t size; /* sizeof(plimsoll_device) */
    void *context; /* passed to every call */
    uint64_t granule; /* what allocations and mapped pieces are multiples of; a power of two */

    /* Bytes that could be had now. */
    uint64_t (*available)(void *context);

    /* Whole allocations: cuMemAlloc, cuMemFree. */
    int (*allocate)(void *context, uint64_t size, uint64_t *address);
    void (*release)(void *context, uint64_t address);

    /* A range of addresses that is backed piece by piece: cuMemAddressReserve, cuMemCreate with cuMemMap and
     * cuMemSetAccess, cuMemUnmap, cuMemAddressFree. All four, or none. A piece is unmapped as it was mapped. */
    int (*reserve_range)(void *context, uint64_t size, uint64_t *address);
    int (*map)(void *context, uint64_t address, uint64_t size);
    void (*unmap)(void *context, uint64_t address, uint64_t size);
    void (*release_range)(void *context, uint64_t address, uint64_t size);

    /* Events: a mark behind the work that was submitted to a stream. Recording cannot fail: an engine that has no event
     * waits for the stream and returns any number. Every event ends in one forget. */
    uint64_t (*record)(void *context, uint64_t stream);
    int (*done)(void *context, uint64_t event); /* not 0: the work before it is done */
    void (*wait)(void *context, uint64_t event); /* waits on the CPU */
    void (*order)(void *context, uint64_t stream, uint64_t event); /* later work of the stream waits, on the card */
    void (*forget)(void *context, uint64_t event);

    /* Not 0: the stream is being captured into a graph. May be null if the engine uses no graphs. */
    int (*capturing)(void *context, uint64_t stream);
} plimsoll_device;

typedef struct plimsoll_options {
    size_t size; /* sizeof(plimsoll_options) */
    uint64_t budget; /* bytes that the pool may hold of the card; 0: no limit */
    uint64_t addresses; /* addresses to set aside for each stream; 0: 1 TiB */
    int32_t no_ranges; /* not 0: whole allocations only, so that each block is one of the driver's own */
    int32_t reserved; /* 0 */
} plimsoll_options;

typedef struct plimsoll_stats {
    size_t size; /* sizeof(plimsoll_stats) */
    uint64_t reserved; /* bytes held of the card */
    uint64_t live; /* bytes of the blocks that are handed out */
    uint64_t peak_reserved;
    uint64_t peak_live;
    uint64_t refused; /* requests that were refused so far */
} plimsoll_stats;

/* `options` may be null. The device is copied; what its context points to must outlive the pool. */
plimsoll_status plimsoll_pool_create(const plimsoll_device *device, const plimsoll_options *options, plimsoll_pool **pool);

/* Gives everything back. The engine has waited for the card. Null is allowed. */
void plimsoll_pool_destroy(plimsoll_pool *pool);

/* A block for use on `stream`, aligned to 256 bytes. */
plimsoll_status plimsoll_pool_allocate(plimsoll_pool *pool, uint64_t size, uint64_t stream, uint64_t *address);

/* Takes a block back; work on `stream` may still use it. */
plimsoll_status plimsoll_pool_free(plimsoll_pool *pool, uint64_t address, uint64_t stream);

/* Gives back what is idle. With `all` 0 only what was idle for some calls and the card is done with, without waiting;
 * otherwise everything that is not live, waiting for the card. `freed` may be null. */
plimsoll_status plimsoll_pool_trim(plimsoll_pool *pool, int32_t all, uint64_t *freed);

/* What is live between begin and end stays backed at its address until the graph, and all that was instantiated from it,
 * is destroyed. */
plimsoll_status plimsoll_pool_capture_begin(plimsoll_pool *pool, uint64_t graph);
plimsoll_status plimsoll_pool_capture_end(plimsoll_pool *pool, uint64_t graph);
plimsoll_status plimsoll_pool_graph_destroyed(plimsoll_pool *pool, uint64_t graph);

plimsoll_status plimsoll_pool_stats(plimsoll_pool *pool, plimsoll_stats *stats);

/* A sentence for a status, in English; never null. */
const char *plimsoll_status_message(plimsoll_status status);

#ifdef __cplusplus
}
#endif

#endif
