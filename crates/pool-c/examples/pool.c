/* An engine in C over Plimsoll's pool. The "card" here is a counter with a limit; a real engine calls its driver in the
 * same places. Prints what it did; returns 0 if all went as told.
 *
 *   cc -I include examples/pool.c -L target/release -l:libplimsoll_pool_c.a -lpthread -ldl -lm -o pool && ./pool
 */
#include <inttypes.h>
#include <stdio.h>

#include "plimsoll_pool.h"

#define MIB ((uint64_t)1 << 20)

/* The card: bytes, and where the next range would lie. */
struct card {
    uint64_t total, used, next;
    unsigned maps, unmaps, events;
};

static uint64_t available(void *context) {
    struct card *card = context;
    return card->total - card->used;
}

static int allocate(void *context, uint64_t size, uint64_t *address) {
    struct card *card = context;
    if (size > available(card)) return 1;
    card->used += size;
    *address = card->next += size;
    return 0;
}

/* This card has ranges, so that the pool never frees a whole allocation. */
static void release_allocation(void *context, uint64_t address) {
    (void)context;
    (void)address;
}

static int reserve_range(void *context, uint64_t size, uint64_t *address) {
    struct card *card = context;
    *address = card->next;
    card->next += size;
    return 0;
}

static int map(void *context, uint64_t address, uint64_t size) {
    struct card *card = context;
    (void)address;
    if (size > available(card)) return 1;
    card->used += size;
    card->maps++;
    return 0;
}

static void unmap(void *context, uint64_t address, uint64_t size) {
    struct card *card = context;
    (void)address;
    card->used -= size;
    card->unmaps++;
}

static void release_range(void *context, uint64_t address, uint64_t size) {
    (void)context;
    (void)address;
    (void)size;
}

/* This card does its work at once, so that every event is done. */
static uint64_t record(void *context, uint64_t stream) {
    (void)stream;
    return ++((struct card *)context)->events;
}
static int done(void *context, uint64_t event) {
    (void)context;
    (void)event;
    return 1;
}
static void wait(void *context, uint64_t event) {
    (void)context;
    (void)event;
}
static void order(void *context, uint64_t stream, uint64_t event) {
    (void)context;
    (void)stream;
    (void)event;
}
static void forget(void *context, uint64_t event) {
    (void)event;
    ((struct card *)context)->events--;
}

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        plimsoll_status status = (call);                                                                               \
        if (status != PLIMSOLL_OK) {                                                                                   \
            fprintf(stderr, "%s: %s\n", #call, plimsoll_status_message(status));                                       \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

int main(void) {
    struct card card = {.total = 1024 * MIB, .next = 4096 * MIB};
    plimsoll_device device = {
        .size = sizeof device, .context = &card, .granule = 2 * MIB,
        .available = available, .allocate = allocate, .release = release_allocation,
        .reserve_range = reserve_range, .map = map, .unmap = unmap, .release_range = release_range,
        .record = record, .done = done, .wait = wait, .order = order, .forget = forget,
    };
    plimsoll_options options = {.size = sizeof options, .budget = 512 * MIB};
    plimsoll_pool *pool;
    CHECK(plimsoll_pool_create(&device, &options, &pool));

    /* A cache that grows step by step, as a prompt does: keys and values, freed in reverse after every step. */
    for (uint64_t step = 1; step <= 400; step++) {
        uint64_t keys, values;
        CHECK(plimsoll_pool_allocate(pool, step * MIB / 2, 0, &keys));
        CHECK(plimsoll_pool_allocate(pool, step * MIB / 2, 0, &values));
        CHECK(plimsoll_pool_free(pool, values, 0));
        CHECK(plimsoll_pool_free(pool, keys, 0));
    }
    plimsoll_stats stats = {.size = sizeof stats};
    CHECK(plimsoll_pool_stats(pool, &stats));
    printf("peak live %" PRIu64 " MiB, peak reserved %" PRIu64 " MiB, %u maps\n", stats.peak_live / MIB,
           stats.peak_reserved / MIB, card.maps);

    uint64_t address;
    plimsoll_status status = plimsoll_pool_allocate(pool, 600 * MIB, 0, &address);
    printf("600 MiB within a budget of 512: %s\n", plimsoll_status_message(status));
    if (status != PLIMSOLL_OUT_OF_MEMORY || plimsoll_pool_free(pool, 42, 0) != PLIMSOLL_NOT_LIVE) return 1;

    /* What a graph has seen stays until the graph is destroyed. */
    CHECK(plimsoll_pool_capture_begin(pool, 7));
    CHECK(plimsoll_pool_allocate(pool, 100 * MIB, 0, &address));
    CHECK(plimsoll_pool_free(pool, address, 0));
    CHECK(plimsoll_pool_capture_end(pool, 7));
    uint64_t freed;
    CHECK(plimsoll_pool_trim(pool, 1, &freed));
    printf("with a graph alive %" PRIu64 " MiB stay", card.used / MIB);
    CHECK(plimsoll_pool_graph_destroyed(pool, 7));
    CHECK(plimsoll_pool_trim(pool, 1, &freed));
    printf(", without it %" PRIu64 "\n", card.used / MIB);

    plimsoll_pool_destroy(pool);
    return card.used == 0 && card.events == 0 ? 0 : 1;
}
