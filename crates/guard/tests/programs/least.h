/* The least time of a call over rounds, in nanoseconds: what else the machine does only adds to it. One line for each:
 * `least CALLS NAME NANOSECONDS`, where CALLS is how many hooked calls one turn of the body makes. */
#include <time.h>

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

#define LEAST(name, calls, ...) do { \
        double least = 1; \
        for (int round = 0; round < 200; round++) { \
            double start = seconds(); \
            for (int turn = 0; turn < 100; turn++) { __VA_ARGS__; } \
            double took = (seconds() - start) / 100; \
            if (took < least) least = took; \
        } \
        printf("least %d %s %.0f\n", calls, name, least * 1e9); \
    } while (0)
