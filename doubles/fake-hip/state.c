/* Settings, the log, errors and the count of bytes. */
#include "hip.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct settings settings = {.cards = 1, .granule = 4096, .managed = 1, .pools = 1, .arch = "gfx1100"};
_Thread_local int current;
static _Thread_local int last_error;
/* hipStreamCaptureModeRelaxed is 2. */
static _Thread_local int capture_mode;
int captures_under_way;
static int broken;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t counted[3][CARDS];

static size_t size(const char *text, char **end) {
    static const char units[] = "KMGT";
    size_t bytes = strtoull(text, end, 0);
    const char *unit = **end ? strchr(units, **end) : 0;
    if (unit) {
        bytes <<= 10 * (unit - units + 1);
        ++*end;
    }
    return bytes;
}

static int number(const char *key, const char *value) {
    static const struct {
        const char *key;
        int *place;
    } numbers[] = {
        {"cards", &settings.cards}, {"vmm", &settings.vmm},     {"host_vmm", &settings.host_vmm}, {"managed", &settings.managed},
        {"pools", &settings.pools}, {"data", &settings.data},   {"lazy", &settings.lazy},         {"calls", &settings.calls},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(key, numbers[i].key)) return *numbers[i].place = atoi(value), 1;
    return 0;
}

/* One size for all cards, or one for each with commas. */
static int totals(char *text) {
    size_t bytes = 0;
    for (int card = 0; card < CARDS; card++) {
        if (*text) bytes = size(text, &text);
        settings.total[card] = bytes;
        if (*text == ',') text++;
        else if (*text) return 0;
    }
    return 1;
}

static int word(char *word) {
    char *value = strchr(word, '='), *end = 0;
    if (!value) return 0;
    *value++ = 0;
    if (!strcmp(word, "total")) return totals(value);
    if (!strcmp(word, "context")) return settings.context = size(value, &end), !*end;
    if (!strcmp(word, "granule")) return settings.granule = size(value, &end), !*end && settings.granule;
    if (!strcmp(word, "arch")) return snprintf(settings.arch, sizeof settings.arch, "%s", value), 1;
    if (!strcmp(word, "log")) return (settings.log = fopen(value, "a")) ? setvbuf(settings.log, 0, _IOLBF, 0), 1 : 0;
    return number(word, value);
}

static void read_settings(void) {
    const char *text = getenv("PLIMSOLL_FAKE_HIP");
    char *words = strdup(text ? text : ""), *rest = words;
    for (int card = 0; card < CARDS; card++) settings.total[card] = 8ull << 30;
    for (char *one = strtok_r(words, " ", &rest); one; one = strtok_r(0, " ", &rest))
        if (!word(one)) fprintf(stderr, "fake-hip: cannot read %s\n", one), broken = 1;
    free(words);
}

void line(const char *format, ...) {
    if (!settings.log) return;
    char text[512];
    va_list words;
    va_start(words, format);
    vsnprintf(text, sizeof text, format, words);
    va_end(words);
    fprintf(settings.log, "%d %s\n", getpid(), text);
}

int called(const char *name) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_settings);
    if (settings.calls) line("call %s", name);
    return broken ? UNKNOWN : SUCCESS;
}

int enter(const char *name) {
    int code = called(name);
    if (code) return code;
    return __atomic_load_n(&captures_under_way, __ATOMIC_ACQUIRE) && capture_mode != 2 ? fail(CAPTURE_UNSUPPORTED) : SUCCESS;
}

int fail(int code) {
    return last_error = code;
}

int count(enum kind kind, int card, size_t bytes) {
    pthread_mutex_lock(&lock);
    size_t limit = kind == DEVICE ? settings.total[card] - settings.context : SIZE_MAX;
    int fits = bytes <= limit && counted[kind][card] <= limit - bytes;
    if (fits) counted[kind][card] += bytes;
    size_t device = counted[DEVICE][card], managed = counted[MANAGED][card], host = counted[HOST][card];
    pthread_mutex_unlock(&lock);
    line("%s %zu card %d: device %zu managed %zu host %zu", fits ? "+" : "refused", bytes, card, device, managed, host);
    return fits;
}

void uncount(enum kind kind, int card, size_t bytes) {
    pthread_mutex_lock(&lock);
    counted[kind][card] -= bytes;
    size_t device = counted[DEVICE][card], managed = counted[MANAGED][card], host = counted[HOST][card];
    pthread_mutex_unlock(&lock);
    line("- %zu card %d: device %zu managed %zu host %zu", bytes, card, device, managed, host);
}

size_t left(int card) {
    pthread_mutex_lock(&lock);
    size_t bytes = settings.total[card] - settings.context - counted[DEVICE][card];
    pthread_mutex_unlock(&lock);
    return bytes;
}

EXPORT int hipGetLastError(void) {
    int code = last_error;
    last_error = SUCCESS;
    return code;
}

EXPORT int hipPeekAtLastError(void) {
    return last_error;
}

EXPORT int hipThreadExchangeStreamCaptureMode(int *mode) {
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return SUCCESS;
}
