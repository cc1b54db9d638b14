/* usage: take [card=N] MIB... [free] [touch=FILE] [until=FILE] [fork] [die]: takes memory of a card through libcuda.so.1 and says
   each result; makes a file, or waits until there is one. */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long long pointer;

static void *library;

static void *function(const char *name) {
    void *address = dlsym(library, name);
    if (!address) {
        fprintf(stderr, "no %s\n", name);
        exit(99);
    }
    return address;
}

int main(int count, char **words) {
    pointer taken[64];
    int number = 0, device = 0, worst = 0;
    void *context;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return 98;
    int (*init)(unsigned) = function("cuInit");
    int (*get)(int *, int) = function("cuDeviceGet");
    int (*retain)(void **, int) = function("cuDevicePrimaryCtxRetain");
    int (*set)(void *) = function("cuCtxSetCurrent");
    int (*allocate)(pointer *, size_t) = function("cuMemAlloc_v2");
    int (*release)(pointer) = function("cuMemFree_v2");
    if (count > 1 && !strncmp(words[1], "card=", 5)) {
        device = atoi(words[1] + 5);
        words++, count--;
    }
    if (count > 1 && !strcmp(words[count - 1], "fork")) {
        pid_t child = fork();
        count--;
        if (child) waitpid(child, &worst, 0);
    }
    if (init(0) || get(&device, device)) return 97;
    int opened = retain(&context, device);
    if (opened) {
        printf("context %d\n", opened);
        return 4;
    }
    set(context);
    for (int i = 1; i < count; i++) {
        if (!strcmp(words[i], "free")) {
            while (number) release(taken[--number]);
        } else if (!strcmp(words[i], "die")) {
            fflush(stdout);
            raise(SIGKILL);
        } else if (!strncmp(words[i], "touch=", 6)) {
            close(open(words[i] + 6, O_CREAT | O_WRONLY, 0600));
        } else if (!strncmp(words[i], "until=", 6)) {
            while (access(words[i] + 6, F_OK)) usleep(1000);
        } else {
            int result = allocate(&taken[number], (size_t)atol(words[i]) << 20);
            printf("%s %d\n", words[i], result);
            if (result) worst = 3;
            else number++;
        }
    }
    return worst;
}
