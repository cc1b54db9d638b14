/* Calls Vulkan as words say, and prints what it is answered: vulkan WORD...
   A slot is the number of a block, in the order of the words that make one. Layouts are those of
   vulkan_core.h 1.3. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "least.h"

typedef void *handle;
typedef void (*function)(void);
static function (*named)(handle, const char *);
static function (*of_device)(handle, const char *);

struct application { uint32_t kind; const void *next; const char *name; uint32_t version; const char *engine; uint32_t engine_version, api; };
struct instance { uint32_t kind; const void *next; uint32_t flags; const struct application *application; uint32_t layers; const char *const *layer_names; uint32_t extensions; const char *const *extension_names; };
struct queue { uint32_t kind; const void *next; uint32_t flags, family, count; const float *priorities; };
struct device { uint32_t kind; const void *next; uint32_t flags, queues; const struct queue *queue; uint32_t layers; const char *const *layer_names; uint32_t extensions; const char *const *extension_names; const void *features; };
struct allocation { uint32_t kind; const void *next; uint64_t size; uint32_t type; };
struct export { uint32_t kind; const void *next; uint32_t handle_types; };
struct import { uint32_t kind; const void *next; uint32_t handle_type; int fd; };
struct get_fd { uint32_t kind; const void *next; uint64_t memory; uint32_t handle_type; };
struct buffer { uint32_t kind; const void *next; uint32_t flags; uint64_t size; uint32_t usage, sharing, families; const uint32_t *list; };
struct requirements { uint64_t size, alignment; uint32_t types; };
struct memory { uint32_t types; struct { uint32_t flags, heap; } type[32]; uint32_t heaps; struct { uint64_t size; uint32_t flags; } heap[16]; };
struct budget { uint32_t kind; void *next; uint64_t budget[16], usage[16]; };
struct memory2 { uint32_t kind; void *next; struct memory memory; };
struct group { uint32_t kind; const void *next; uint32_t count; const handle *cards; };

#define SLOTS 4096
static handle instance, cards[16], on;
static uint32_t card_count = 16;
static uint64_t slots[SLOTS], sizes[SLOTS];
static int count, chosen;
static const uint32_t OPAQUE_FD = 1;

#define CALL(type, name) ((type)named(instance, name))
static int (*allocate)(handle, const void *, const void *, uint64_t *);
static void (*release)(handle, uint64_t, const void *);
static int (*create_buffer)(handle, const void *, const void *, uint64_t *);
static void (*destroy_buffer)(handle, uint64_t, const void *);
static void (*require)(handle, uint64_t, struct requirements *);

static void open_device(const char *extensions[], uint32_t extension_count, int grouped) {
    float priority = 1;
    struct queue queue = {2, 0, 0, 0, 1, &priority};
    struct group group = {1000070001, 0, 2, cards};
    struct device wish = {3, grouped ? &group : 0, 0, 1, &queue, 0, 0, extension_count, extensions, 0};
    int code = CALL(int (*)(handle, const void *, const void *, handle *), "vkCreateDevice")(cards[chosen], &wish, 0, &on);
    printf("device %d\n", code);
    if (code) exit(3);
    allocate = (void *)of_device(on, "vkAllocateMemory");
    release = (void *)of_device(on, "vkFreeMemory");
    create_buffer = (void *)of_device(on, "vkCreateBuffer");
    destroy_buffer = (void *)of_device(on, "vkDestroyBuffer");
    require = (void *)of_device(on, "vkGetBufferMemoryRequirements");
}

static void heaps(void) {
    struct budget budget = {1000237000, 0, {0}, {0}};
    struct memory2 both = {1000059006, &budget, {0}};
    struct memory plain = {0};
    CALL(void (*)(handle, void *), "vkGetPhysicalDeviceMemoryProperties2")(cards[chosen], &both);
    CALL(void (*)(handle, void *), "vkGetPhysicalDeviceMemoryProperties")(cards[chosen], &plain);
    for (uint32_t n = 0; n < plain.heaps; n++)
        printf("heap %u %lu %lu %u left %lu usage %d\n", n, (unsigned long)plain.heap[n].size,
               (unsigned long)both.memory.heap[n].size, plain.heap[n].flags,
               (unsigned long)(budget.budget[n] - budget.usage[n]), budget.usage[n] <= budget.budget[n]);
}

/* The groups of devices: the result and length of the list, and what is given to half of that room. */
static void groups(void) {
    struct { uint32_t kind; void *next; uint32_t count; handle cards[32]; uint32_t subset; } room[16] = {0};
    for (int n = 0; n < 16; n++) room[n].kind = 1000070000;
    int (*list)(handle, uint32_t *, void *) = (void *)named(instance, "vkEnumeratePhysicalDeviceGroups");
    uint32_t all = 0, given = 16;
    int first = list(instance, &all, 0), second = list(instance, &given, room);
    printf("groups %d %u %d %u\n", first, all, second, given);
}

static int take(uint64_t size, uint32_t type, const void *next) {
    struct allocation wish = {5, next, size, type};
    uint64_t made = 0;
    int code = allocate(on, &wish, 0, &made);
    slots[count] = code ? 0 : made;
    sizes[count++] = size;
    return code;
}

/* Memory for one buffer, in the first of these types that has it. */
static void buffer(uint64_t size, char *types) {
    struct buffer wish = {12, 0, 0, size, 0x23, 0, 0, 0};
    uint64_t made = 0;
    create_buffer(on, &wish, 0, &made);
    struct requirements need;
    require(on, made, &need);
    int code = 1;
    for (char *type = strtok(types, "+"); type && code; type = strtok(0, "+")) {
        if (code != 1) count--;
        code = take(need.size, atoi(type), 0);
    }
    destroy_buffer(on, made, 0);
    printf("buffer %d %lu\n", code, (unsigned long)need.size);
}

/* Writes what this process has now, or is about to give up, to a file that several processes share: at no
   line do they hold less than the sum of those before. */
static void note(long size) {
    static int file = -1;
    const char *path = getenv("CHURN_LOG");
    if (!path) return;
    if (file < 0) file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    char line[32];
    if (write(file, line, sprintf(line, "%+ld\n", size)) < 0) exit(5);
}

/* Allocates and frees blocks of random sizes, as many as a seed says; prints how many were refused. */
static void churn(unsigned seed, int steps, uint64_t most, uint32_t type) {
    uint64_t live[32] = {0}, size[32];
    int refused = 0;
    for (int step = 0; step < steps; step++) {
        int slot = rand_r(&seed) % 32;
        if (live[slot]) {
            note(-(long)size[slot]);
            release(on, live[slot], 0);
            live[slot] = 0;
            continue;
        }
        struct allocation wish = {5, 0, 4096ull * (1 + rand_r(&seed) % (most / 4096)), type};
        int code = allocate(on, &wish, 0, &live[slot]);
        if (code) {
            live[slot] = 0;
            refused += code == -2;
        } else {
            size[slot] = wish.size;
            note(wish.size);
        }
    }
    for (int slot = 0; slot < 32; slot++) {
        if (!live[slot]) continue;
        note(-(long)size[slot]);
        release(on, live[slot], 0);
    }
    printf("churn %d\n", refused);
}

static void speed(void) {
    struct allocation wish = {5, 0, 4096, 0};
    struct buffer of = {12, 0, 0, 4096, 0x23, 0, 0, 0};
    struct memory plain;
    struct budget budget = {1000237000, 0, {0}, {0}};
    struct memory2 both = {1000059006, &budget, {0}};
    uint64_t made = 0;
    create_buffer(on, &of, 0, &made);
    struct requirements need;
    void (*memory)(handle, void *) = (void *)named(instance, "vkGetPhysicalDeviceMemoryProperties");
    void (*memory2)(handle, void *) = (void *)named(instance, "vkGetPhysicalDeviceMemoryProperties2");
    int (*list)(handle, uint32_t *, handle *) = (void *)named(instance, "vkEnumeratePhysicalDevices");
    LEAST("allocate, free", 2, { uint64_t block; allocate(on, &wish, 0, &block); release(on, block, 0); });
    LEAST("requirements", 1, require(on, made, &need));
    LEAST("memory", 1, memory(cards[chosen], &plain));
    LEAST("memory2", 1, memory2(cards[chosen], &both));
    LEAST("enumerate", 1, { uint32_t room = 16; list(instance, &room, cards); });
}

static void *thread(void *seed) {
    churn((unsigned)(uintptr_t)seed, 2000, 1 << 16, 0);
    return 0;
}

int main(int arguments, char **words) {
    void *library = dlopen("libvulkan.so.1", RTLD_NOW);
    if (!library) return puts(dlerror()), 1;
    named = (void *)dlsym(library, "vkGetInstanceProcAddr");
    of_device = (void *)dlsym(library, "vkGetDeviceProcAddr");
    struct application application = {0, 0, 0, 0, 0, 0, (1u << 22) | (1u << 12)};
    struct instance wish = {1, 0, 0, &application, 0, 0, 0, 0};
    int code = CALL(int (*)(const void *, const void *, handle *), "vkCreateInstance")(&wish, 0, &instance);
    printf("instance %d\n", code);
    if (code) return 2;
    code = CALL(int (*)(handle, uint32_t *, handle *), "vkEnumeratePhysicalDevices")(instance, &card_count, cards);
    printf("cards %d %u\n", code, card_count);
    for (int n = 1; n < arguments; n++) {
        char *word = strdup(words[n]), *first = strchr(word, ':'), *second = 0, *third = 0;
        if (first) *first++ = 0, second = strchr(first, ':');
        if (second) *second++ = 0, third = strchr(second, ':');
        if (third) *third++ = 0;
        uint64_t number = first ? strtoull(first, 0, 0) : 0;
        const char *shared[] = {"VK_KHR_external_memory_fd"};
        if (!strcmp(word, "card")) chosen = number;
        else if (!strcmp(word, "open")) open_device(0, 0, 0);
        else if (!strcmp(word, "open-shared")) open_device(shared, 1, 0);
        else if (!strcmp(word, "open-group")) open_device(0, 0, 1);
        else if (!strcmp(word, "heaps")) heaps();
        else if (!strcmp(word, "groups")) groups();
        else if (!strcmp(word, "alloc")) printf("alloc %d\n", take(number, second ? atoi(second) : 0, 0));
        else if (!strcmp(word, "buffer")) buffer(number, second);
        else if (!strcmp(word, "free")) release(on, slots[number], 0), printf("free\n");
        else if (!strcmp(word, "churn")) churn(number, atoi(second), strtoull(third, 0, 0), 0);
        else if (!strcmp(word, "speed")) speed();
        else if (!strcmp(word, "share")) {
            struct export may = {1000072002, 0, OPAQUE_FD};
            printf("share %d\n", take(number, 0, &may));
        } else if (!strcmp(word, "import")) {
            struct get_fd of = {1000074002, 0, slots[number], OPAQUE_FD};
            int fd = -1;
            int got = ((int (*)(handle, const void *, int *))of_device(on, "vkGetMemoryFdKHR"))(on, &of, &fd);
            struct import from = {1000074000, 0, OPAQUE_FD, fd};
            int made = take(sizes[number], 0, &from);
            printf("import %d %d\n", got, made);
        } else if (!strcmp(word, "threads")) {
            pthread_t all[8];
            for (uintptr_t t = 0; t < 8; t++) pthread_create(&all[t], 0, thread, (void *)(t + 1));
            for (int t = 0; t < 8; t++) pthread_join(all[t], 0);
        } else if (!strcmp(word, "wait")) {
            fflush(stdout);
            char byte;
            if (read(0, &byte, 1) < 0) return 4;
        } else if (!strcmp(word, "close")) {
            CALL(void (*)(handle, const void *), "vkDestroyDevice")(on, 0);
            printf("close\n");
        } else if (!strcmp(word, "end")) {
            CALL(void (*)(handle, const void *), "vkDestroyInstance")(instance, 0);
            printf("end\n");
        }
        fflush(stdout);
        free(word);
    }
    return 0;
}
