/* Decodes a prompt of TOKENS tokens through the llama.dll of b8390 in its folder, as llama-server does, with
   a context of 32768 tokens, micro-batches of 512 and flash attention. Of llama-server's flags it reads `-m` and
   `-ctk`. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

/* Offsets in llama_model_params and llama_context_params (llama.h @ b8390). */
enum { LAYERS = 16, LENGTH = 0, BATCH = 4, UBATCH = 8, ATTENTION = 36, TYPE_K = 88, TYPE_V = 92, LARGEST = 512 };
/* Types of a cache in ggml.h. */
enum { F16 = 1, Q8_0 = 8 };
enum { MODEL_FAILED = 3, CONTEXT_FAILED = 4, DECODE_FAILED = 5 };

typedef struct {
    char bytes[LARGEST];
} parameters;
typedef struct {
    int32_t count;
    void *pointers[6];
} batch;

static void *function(HMODULE library, const char *name) {
    void *found = (void *)GetProcAddress(library, name);
    if (!found) printf("no %s\n", name), exit(2);
    return found;
}
static void set(parameters *of, int at, int32_t value) { *(int32_t *)(of->bytes + at) = value; }

/* Marks the begin of the prompt in the stand-in's log. */
static void mark(void) {
    const char *file = getenv("FAKE_CUDA_LOG");
    FILE *record = file ? fopen(file, "a") : 0;
    if (record) fputs("prompt\n", record), fclose(record);
}

static const char *flag(int count, char **words, const char *name) {
    for (int i = 1; i + 1 < count; i++)
        if (!strcmp(words[i], name)) return words[i + 1];
    return "";
}

int main(int count, char **words) {
    HMODULE ggml = LoadLibraryA("ggml.cuda.b8390.dll"), llama = LoadLibraryA("llama.cuda.b8390.dll");
    if (!ggml || !llama) return printf("cannot load: %lu\n", GetLastError()), 1;
    void *(*load)(const char *) = function(ggml, "ggml_backend_load");
    const char *more = getenv("GGML_BACKEND_PATH");
    if (!load("ggml-cuda.dll") || !load("ggml-cpu-x64.dll")) return 1;
    /* As `ggml_backend_load_all` does, after its own backends. */
    if (more && !load(more)) return 1;
    ((void (*)(void))function(llama, "llama_backend_init"))();
    parameters model = {0}, context = {0};
    ((parameters * (*)(parameters *)) function(llama, "llama_model_default_params"))(&model);
    ((parameters * (*)(parameters *)) function(llama, "llama_context_default_params"))(&context);
    set(&model, LAYERS, 99);
    void *loaded = ((void *(*)(const char *, parameters *))function(llama, "llama_model_load_from_file"))(flag(count, words, "-m"), &model);
    if (!loaded) return MODEL_FAILED;
    set(&context, LENGTH, 32768), set(&context, BATCH, 2048), set(&context, UBATCH, 512), set(&context, ATTENTION, 1);
    int type = strcmp(flag(count, words, "-ctk"), "q8_0") ? F16 : Q8_0;
    set(&context, TYPE_K, type), set(&context, TYPE_V, type);
    void *made = ((void *(*)(void *, parameters *))function(llama, "llama_init_from_model"))(loaded, &context);
    if (!made) return CONTEXT_FAILED;
    int (*decode)(void *, batch) = function(llama, "llama_decode");
    batch (*of_tokens)(int32_t *, int32_t) = function(llama, "llama_batch_get_one");
    static int32_t tokens[2048];
    const char *asked = getenv("TOKENS");
    int all = asked ? atoi(asked) : 0;
    mark();
    for (int done = 0; done < all; done += 2048) {
        int part = all - done < 2048 ? all - done : 2048;
        for (int i = 0; i < part; i++) tokens[i] = 300 + (done + i) % 20000;
        if (decode(made, of_tokens(tokens, part))) return DECODE_FAILED;
    }
    return printf("decoded %d\n", all), 0;
}
