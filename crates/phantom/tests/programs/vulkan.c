/* Asks the stand-in what Vulkan's loader and an engine ask, and prints what it is answered.
   Usage: vulkan LIBRARY {cards|memory|touch}. Layouts are those of vulkan_core.h 1.3. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef void (*function)(void);
static function (*get)(void *, const char *);

#define CALL(type, name) ((type)get(0, name))
typedef int (*create)(const void *, const void *, const void *, uint64_t *);
typedef int (*list)(uint64_t, uint32_t *, void *);

struct allocation { uint32_t kind; const void *next; uint64_t bytes; uint32_t type; };
struct buffer { uint32_t kind; const void *next; uint32_t flags; uint64_t size; uint32_t rest[6]; };
struct requirements { uint64_t size, alignment; uint32_t types; };

static uint64_t cards[16];
static uint32_t count = 16;

static uint64_t device(uint64_t card) {
    uint64_t made = 0;
    ((int (*)(uint64_t, const void *, const void *, uint64_t *))get(0, "vkCreateDevice"))(card, 0, 0, &made);
    return made;
}

static int take(uint64_t device, uint64_t bytes, uint32_t type, uint64_t *memory) {
    struct allocation wish = {5, 0, bytes, type};
    return ((int (*)(uint64_t, const void *, const void *, uint64_t *))get(0, "vkAllocateMemory"))(device, &wish, 0, memory);
}

static void show_cards(void) {
    uint32_t one = 1, version = 9;
    int status = CALL(list, "vkEnumeratePhysicalDevices")(0, &one, cards);
    printf("room for 1: %d, %u\n", status, one);
    printf("unknown function %d\n", get(0, "vkCreateSwapchainKHR") != 0);
    uint32_t all = 0, few = 3, room[3][14];
    list flexible = CALL(list, "vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV");
    flexible(cards[0], &all, 0);
    status = flexible(cards[0], &few, room);
    printf("%u matrices of a workgroup, room for 3: %d, %u, %u invocations\n", all, status, few, room[2][13]);
    for (uint32_t n = 0; n < count; n++) {
        unsigned char text[832];
        memset(text, 0xee, sizeof text);
        ((void (*)(uint64_t, void *))get(0, "vkGetPhysicalDeviceProperties"))(cards[n], text);
        uint32_t words[206];
        memcpy(words, text, 824);
        unsigned char memory[528];
        ((void (*)(uint64_t, void *))get(0, "vkGetPhysicalDeviceMemoryProperties"))(cards[n], memory);
        uint64_t heap;
        memcpy(&heap, memory + 264, 8);
        printf("%s: vendor %x, type %u, %u memory types, %lu bytes, end %02x\n", text + 20, words[2], words[4], *memory, (unsigned long)heap, text[824]);
    }
}

static void show_memory(int touch) {
    uint64_t on = device(cards[0]), local = 0, host = 0, none = 0, made = 0;
    int first = take(on, 3ull << 30, 0, &local);
    printf("taken %d %d,", first, take(on, 1 << 20, 1, &host));
    printf(" too large %d\n", take(on, UINT64_MAX, 0, &none));
    void *place = 0;
    int (*map)(uint64_t, uint64_t, uint64_t, uint64_t, uint32_t, void **) = (void *)get(0, "vkMapMemory");
    printf("mapped %d, beyond everything %d\n", map(on, host, 64, UINT64_MAX, 0, &place), map(on, host, UINT64_MAX, 1, 0, &(void *){0}));
    memset(place, 7, 4096);
    struct buffer wish = {12, 0, 0, 1000, {0}};
    ((int (*)(uint64_t, const void *, const void *, uint64_t *))get(0, "vkCreateBuffer"))(on, &wish, 0, &made);
    struct requirements need, stale;
    void (*needs)(uint64_t, uint64_t, void *) = (void *)get(0, "vkGetBufferMemoryRequirements");
    needs(on, made, &need);
    needs(on, 12345, &stale);
    printf("a buffer of 1000 takes %lu, one that is not there %lu\n", (unsigned long)need.size, (unsigned long)stale.size);
    fflush(stdout);
    if (touch) memset((void *)local, 7, 1);
    void (*give)(uint64_t, uint64_t, const void *) = (void *)get(0, "vkFreeMemory");
    give(on, local, 0);
    give(on, host, 0);
    give(on, 0, 0);
    give(on, 12345, 0);
    uint64_t value = 0;
    ((int (*)(uint64_t, uint64_t, uint64_t *))get(0, "vkGetSemaphoreCounterValue"))(on, 1, &value);
    printf("fence %d, counter %lx\n", ((int (*)(uint64_t, uint64_t))get(0, "vkGetFenceStatus"))(on, 1), (unsigned long)value);
}

int main(int arguments, char **words) {
    void *library = dlopen(words[1], RTLD_NOW);
    if (!library) return puts(dlerror()), 1;
    int (*negotiate)(uint32_t *) = (void *)dlsym(library, "vk_icdNegotiateLoaderICDInterfaceVersion");
    uint32_t version = 9;
    negotiate(&version);
    get = (void *)dlsym(library, "vk_icdGetInstanceProcAddr");
    function (*of_card)(void *, const char *) = (void *)dlsym(library, "vk_icdGetPhysicalDeviceProcAddr");
    int status = CALL(list, "vkEnumeratePhysicalDevices")(0, &count, cards);
    printf("interface %u, %u cards, status %d\n", version, count, status);
    const char *names[] = {"vkGetPhysicalDeviceFeatures", "vkGetPhysicalDeviceNothing", "vkAllocateMemory", ""};
    for (int n = 0; n < 4; n++) printf("%d", of_card(0, names[n]) != 0);
    printf(" of a card\n");
    if (!strcmp(words[2], "cards")) show_cards();
    else show_memory(!strcmp(words[2], "touch"));
    return 0;
}
