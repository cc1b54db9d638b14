/* Types of HIP's runtime as far as this stand-in has them, and what its files share.
   Numbers and layouts are those of hip_runtime_api.h 6.4.3. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    NOT_FOUND = 500,
    NOT_READY = 600,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    UNKNOWN = 999,
};

#define EXPORT __attribute__((visibility("default")))
/* A call that a stream capture forbids, unless its thread has relaxed that. */
#define ENTER(name)                                                                                                    \
    do {                                                                                                               \
        int refused = enter(name);                                                                                     \
        if (refused) return refused;                                                                                   \
    } while (0)

enum { CARDS = 8 };

/* Words of PLIMSOLL_FAKE_HIP; README.md has the table. */
struct settings {
    size_t total[CARDS];
    size_t context, granule;
    int cards, vmm, host_vmm, managed, pools, data, lazy, calls;
    char arch[32];
    FILE *log;
};

extern struct settings settings;
extern _Thread_local int current;

/* Reads the settings at the first call and logs the name; an error if the thread may not make the call now. */
int enter(const char *name);
/* The same for a call that is always allowed. */
int called(const char *name);
/* Remembers an error for hipGetLastError. */
int fail(int code);
void line(const char *format, ...) __attribute__((format(printf, 1, 2)));

enum kind { DEVICE, MANAGED, HOST };
/* Counts bytes of a kind on a card; false where the card has no room. */
int count(enum kind kind, int card, size_t bytes);
void uncount(enum kind kind, int card, size_t bytes);
size_t left(int card);
