// A host that is to the plugin what ggml is: the functions that it calls, over structures of our own in ggml's layout, and a
// loader that does what ggml's does. SLOTS is the interface that it has: 2 and 3 as in the wild, 4 as none. VERSION is the number
// that its loader accepts. Linked with -rdynamic it shows its functions, without it hides them.

#include <assert.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef const void * slot;

struct buffer;
struct tensor {
    int kind;
    struct buffer * buffer;
    int64_t ne[4];
    size_t nb[4];
    int op;
    int32_t op_params[16];
    int32_t flags;
    struct tensor * src[10];
    struct tensor * view_src;
    size_t view_offs;
    void * data;
    char name[64];
    void * extra;
    char padding[8];
};

struct graph { int size, n_nodes, n_leafs; struct tensor ** nodes; struct tensor * node; };

#if SLOTS == 2
enum { GET_NAME, ALLOC, ALIGNMENT, MAX_SIZE, ALLOC_SIZE, IS_HOST, BUFFER_TYPE_SLOTS };
#elif SLOTS == 3
enum { GET_NAME, ALLOC, ALLOC_N, ALIGNMENT, MAX_SIZE, ALLOC_SIZE, ALLOC_SIZE_N, IS_HOST, BUFFER_TYPE_SLOTS };
#else
enum { GET_NAME, ALLOC, ALLOC_N, ALLOC_M, ALIGNMENT, MAX_SIZE, ALLOC_SIZE, IS_HOST, BUFFER_TYPE_SLOTS };
#endif

struct device;
struct buffer_type { slot slots[BUFFER_TYPE_SLOTS]; struct device * device; void * context; };
struct buffer_table { slot slots[11]; };
struct buffer { struct buffer_table table; struct buffer_type * type; void * context; size_t size; int usage; };
struct backend { void * guid; slot slots[16]; struct device * device; void * context; };
struct registry { int version; slot slots[4]; void * context; };
struct device { slot slots[15]; struct registry * registry; void * context; };
struct properties {
    const char * name, * description;
    size_t memory_free, memory_total;
    int kind;
    const char * id;
    bool async, host_buffer, buffer_from_host_ptr, events;
};
struct init { size_t size; void * memory; bool no_alloc; };

#define CALL(result, table, at, ...) (((result (*)())(uintptr_t)(table)[at])(__VA_ARGS__))

// numbers of types and operations, which are nobody else's
enum { F32, Q8_0, F16 };
enum { NONE, FLASH, PRODUCT, SCALE, VIEW };
static const char * OPS[] = { "NONE", "FLASH_ATTN_EXT", "MUL_MAT", "SCALE", "VIEW" };
static const char * TYPES[] = { "f32", "q8_0", "f16" };

const char * ggml_op_name(int op) { return OPS[op]; }
const char * ggml_unary_op_name(int op) { (void) op; return "ABS"; }
const char * ggml_glu_op_name(int op) { (void) op; return "SWIGLU"; }
const char * ggml_type_name(int kind) { return TYPES[kind]; }
size_t ggml_type_size(int kind) { return (size_t[]) { 4, 34, 2 }[kind]; }
int64_t ggml_blck_size(int kind) { return kind == Q8_0 ? 32 : 1; }
bool ggml_is_quantized(int kind) { return kind == Q8_0; }
const char * ggml_version(void) { return "0.0.host"; }

struct buffer * ggml_backend_buffer_init(struct buffer_type * type, struct buffer_table table, void * context, size_t size) {
    struct buffer * buffer = malloc(sizeof *buffer);
    *buffer = (struct buffer) { table, type, context, size, 0 };
    return buffer;
}
void ggml_backend_buffer_free(struct buffer * buffer) {
    if (buffer->table.slots[0]) CALL(void, buffer->table.slots, 0, buffer);
    free(buffer);
}
size_t ggml_backend_buffer_get_size(struct buffer * buffer) { return buffer->size; }
struct buffer_type * ggml_backend_buffer_get_type(struct buffer * buffer) { return buffer->type; }
void ggml_backend_buffer_set_usage(struct buffer * buffer, int usage) { buffer->usage = usage; }

static size_t cpu_alignment(void * type) { (void) type; return 32; }
struct buffer_type * ggml_backend_cpu_buffer_type(void) {
    static struct buffer_type type;
    type.slots[ALIGNMENT] = (slot)(uintptr_t) cpu_alignment;
    return &type;
}
struct buffer * ggml_backend_cpu_buffer_from_ptr(void * memory, size_t size) {
    return ggml_backend_buffer_init(ggml_backend_cpu_buffer_type(), (struct buffer_table) { { 0 } }, memory, size);
}

const char * ggml_backend_buft_name(struct buffer_type * t) { return CALL(const char *, t->slots, GET_NAME, t); }
size_t ggml_backend_buft_get_alignment(struct buffer_type * t) { return CALL(size_t, t->slots, ALIGNMENT, t); }
size_t ggml_backend_buft_get_max_size(struct buffer_type * t) { return t->slots[MAX_SIZE] ? CALL(size_t, t->slots, MAX_SIZE, t) : SIZE_MAX; }
size_t ggml_backend_buft_get_alloc_size(struct buffer_type * t, const struct tensor * tensor) { return CALL(size_t, t->slots, ALLOC_SIZE, t, tensor); }
bool ggml_backend_buft_is_host(struct buffer_type * t) { return t->slots[IS_HOST] && CALL(bool, t->slots, IS_HOST, t); }
struct device * ggml_backend_buft_get_device(struct buffer_type * t) { return t->device; }

const char * ggml_backend_dev_name(struct device * d) { return CALL(const char *, d->slots, 0, d); }
const char * ggml_backend_dev_description(struct device * d) { return CALL(const char *, d->slots, 1, d); }
int ggml_backend_dev_type(struct device * d) { return CALL(int, d->slots, 3, d); }
void ggml_backend_dev_get_props(struct device * d, struct properties * p) { memset(p, 0, sizeof *p); CALL(void, d->slots, 4, d, p); }
struct backend * ggml_backend_dev_init(struct device * d, const char * words) { return CALL(struct backend *, d->slots, 5, d, words); }
struct buffer_type * ggml_backend_dev_buffer_type(struct device * d) { return CALL(struct buffer_type *, d->slots, 6, d); }
struct buffer_type * ggml_backend_dev_host_buffer_type(struct device * d) { return CALL(struct buffer_type *, d->slots, 7, d); }
bool ggml_backend_dev_supports_op(struct device * d, const struct tensor * op) { return CALL(bool, d->slots, 9, d, op); }
bool ggml_backend_dev_supports_buft(struct device * d, struct buffer_type * t) { return CALL(bool, d->slots, 10, d, t); }
bool ggml_backend_dev_offload_op(struct device * d, const struct tensor * op) { return CALL(bool, d->slots, 11, d, op); }
struct registry * ggml_backend_dev_backend_reg(struct device * d) { return d->registry; }
void * ggml_backend_event_new(struct device * d) { return CALL(void *, d->slots, 12, d); }
const char * ggml_backend_reg_name(struct registry * r) { return CALL(const char *, r->slots, 0, r); }
size_t ggml_backend_reg_dev_count(struct registry * r) { return CALL(size_t, r->slots, 1, r); }
void * ggml_backend_reg_get_proc_address(struct registry * r, const char * name) { return CALL(void *, r->slots, 3, r, name); }
const char * ggml_backend_name(struct backend * b) { return CALL(const char *, b->slots, 0, b); }
int ggml_backend_graph_compute_async(struct backend * b, struct graph * g) { return CALL(int, b->slots, 12, b, g); }
struct device * ggml_backend_get_device(struct backend * b) { return b->device; }

// a context is a list of tensors, freed together
struct context { void * made[16]; int count; };
static void * make(struct context * context, size_t size) {
    assert(context->count < 16);
    return context->made[context->count++] = calloc(1, size);
}
size_t ggml_tensor_overhead(void) { return 32 + sizeof(struct tensor); }
struct context * ggml_init(struct init init) { assert(init.no_alloc); return calloc(1, sizeof(struct context)); }
void ggml_free(struct context * context) {
    while (context->count) free(context->made[--context->count]);
    free(context);
}
static void shape(struct tensor * t, int kind, int64_t a, int64_t b, int64_t c, int64_t d) {
    t->kind = kind;
    int64_t ne[4] = { a, b, c, d };
    memcpy(t->ne, ne, sizeof ne);
    t->nb[0] = ggml_type_size(kind);
    t->nb[1] = t->nb[0] * (size_t)(a / ggml_blck_size(kind));
    t->nb[2] = t->nb[1] * (size_t) b;
    t->nb[3] = t->nb[2] * (size_t) c;
}
struct tensor * ggml_new_tensor_4d(struct context * context, int kind, int64_t a, int64_t b, int64_t c, int64_t d) {
    struct tensor * t = make(context, sizeof *t);
    shape(t, kind, a, b, c, d);
    return t;
}
struct tensor * ggml_mul_mat(struct context * context, struct tensor * a, struct tensor * b) {
    struct tensor * t = ggml_new_tensor_4d(context, F32, a->ne[1], b->ne[1], b->ne[2], b->ne[3]);
    t->op = PRODUCT, t->src[0] = a, t->src[1] = b;
    return t;
}
struct tensor * ggml_scale(struct context * context, struct tensor * a, float by) {
    struct tensor * t = ggml_new_tensor_4d(context, F32, a->ne[0], a->ne[1], a->ne[2], a->ne[3]);
    t->op = SCALE, t->src[0] = a;
    memcpy(t->op_params, &by, sizeof by);
    return t;
}
struct tensor * ggml_view_1d(struct context * context, struct tensor * a, int64_t n, size_t offset) {
    struct tensor * t = ggml_new_tensor_4d(context, a->kind, n, 1, 1, 1);
    t->op = VIEW, t->src[0] = t->view_src = a, t->view_offs = offset;
    return t;
}
const char * ggml_get_name(const struct tensor * t) { return t->name; }
struct graph * ggml_new_graph(struct context * context) {
    struct graph * g = make(context, sizeof *g);
    g->nodes = &g->node;
    return g;
}
void ggml_build_forward_expand(struct graph * g, struct tensor * t) { g->nodes[g->n_nodes++] = t; }
int ggml_graph_n_nodes(struct graph * g) { return g->n_nodes; }
struct tensor * ggml_graph_node(struct graph * g, int i) { return g->nodes[i]; }

// as ggml_backend_registry::load_backend
static struct registry * load(const char * path) {
    void * library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) { printf("not loaded: %s\n", dlerror()); return NULL; }
    int (*score)(void) = (int (*)(void)) dlsym(library, "ggml_backend_score");
    if (score && score() == 0) { printf("not supported on this system\n"); return NULL; }
    struct registry * (*init)(void) = (struct registry * (*)(void)) dlsym(library, "ggml_backend_init");
    struct registry * registry = init ? init() : NULL;
    if (!registry || registry->version != VERSION) {
        printf("incompatible API version (backend: %d, current: %d)\n", registry ? registry->version : 0, VERSION);
        return NULL;
    }
    return registry;
}

static void devices(struct registry * registry) {
    size_t count = ggml_backend_reg_dev_count(registry);
    printf("registry %s of %zu devices\n", ggml_backend_reg_name(registry), count);
    for (size_t i = 0; i < count; i++) {
        struct device * device = CALL(struct device *, registry->slots, 2, registry, i);
        struct properties p;
        ggml_backend_dev_get_props(device, &p);
        printf("%s, %s, type %d, free %zu of %zu, id %s, async %d events %d host %d ptr %d, buffers %s and %s of %zu and %zu\n",
            p.name, p.description, p.kind, p.memory_free, p.memory_total, p.id, p.async, p.events, p.host_buffer,
            p.buffer_from_host_ptr, ggml_backend_buft_name(ggml_backend_dev_buffer_type(device)),
            ggml_backend_buft_name(ggml_backend_dev_host_buffer_type(device)),
            ggml_backend_buft_get_alignment(ggml_backend_dev_buffer_type(device)),
            ggml_backend_buft_get_alignment(ggml_backend_dev_host_buffer_type(device)));
    }
    printf("device %zu is %s\n", count, CALL(void *, registry->slots, 2, registry, count) ? "there" : "none");
}

static void buffers(struct device * device) {
    struct buffer_type * type = ggml_backend_dev_buffer_type(device), * host = ggml_backend_dev_host_buffer_type(device);
    struct buffer * buffer = CALL(struct buffer *, type->slots, ALLOC, type, (size_t) 1 << 36);
    struct properties p;
    ggml_backend_dev_get_props(device, &p);
    printf("a buffer of %zu leaves %zu free\n", buffer->size, p.memory_free);
    unsigned char back[4] = { 1, 2, 3, 4 };
    struct tensor t = { .buffer = buffer };
    shape(&t, F32, 1, 1, 1, 1);
    CALL(void, buffer->table.slots, 5, buffer, &t, back, (size_t) 0, (size_t) 4);
    printf("read back: %d %d %d %d\n", back[0], back[1], back[2], back[3]);
    ggml_backend_buffer_set_usage(buffer, 1);
    ggml_backend_buffer_free(buffer);
    buffer = CALL(struct buffer *, host->slots, ALLOC, host, (size_t) 1 << 20);
    memset(buffer->context, 7, buffer->size);
    printf("%zu bytes of the host's are there, host %d and %d\n", buffer->size, ggml_backend_buft_is_host(host), ggml_backend_buft_is_host(type));
    ggml_backend_buffer_free(buffer);
    printf("own %d, other %d\n", ggml_backend_dev_supports_buft(device, type), ggml_backend_dev_supports_buft(device, host));
}

static void sizes(struct device * device) {
    struct buffer_type * type = ggml_backend_dev_buffer_type(device);
    struct tensor t = { 0 }, q = { 0 }, k = { 0 }, v = { 0 }, mask = { 0 };
    shape(&t, Q8_0, 576, 10, 1, 1);
    printf("576 x 10 in q8_0: %zu\n", ggml_backend_buft_get_alloc_size(type, &t));
    shape(&q, F32, 128, 512, 32, 1);
    shape(&k, Q8_0, 128, 8192, 8, 1);
    shape(&v, Q8_0, 128, 8192, 8, 1);
    shape(&mask, F16, 8192, 512, 1, 1);
    struct tensor attention = { .op = FLASH, .src = { &q, &k, &v, &mask } };
    shape(&attention, F32, 128, 32, 512, 1);
    printf("attention: %zu, taken %d\n", ggml_backend_buft_get_alloc_size(type, &attention), ggml_backend_dev_supports_op(device, &attention));
    struct tensor orphan = { .op = FLASH };
    shape(&orphan, F32, 1, 1, 1, 1);
    struct tensor absurd = { .op = PRODUCT, .kind = 1 << 30, .ne = { -1, INT64_MAX, 0, 5 }, .src = { &orphan } };
    printf("orphan: %zu, taken %d; absurd: %zu, taken %d, offloaded %d; null: taken %d\n",
        ggml_backend_buft_get_alloc_size(type, &orphan), ggml_backend_dev_supports_op(device, &orphan),
        ggml_backend_buft_get_alloc_size(type, &absurd), ggml_backend_dev_supports_op(device, &absurd),
        ggml_backend_dev_offload_op(device, &absurd), ggml_backend_dev_supports_op(device, NULL));
}

static void compute(struct device * device) {
    struct backend * backend = ggml_backend_dev_init(device, NULL);
    void * event = ggml_backend_event_new(device);
    CALL(void, backend->slots, 13, backend, event);
    struct tensor weights = { 0 }, columns = { 0 }, product = { .op = PRODUCT, .src = { &weights, &columns } };
    struct tensor * nodes[] = { &product, NULL, &weights };
    struct graph graph = { 3, 3, 0, nodes, NULL };
    for (int64_t tokens = 1; tokens <= 512; tokens *= 512) {
        shape(&weights, Q8_0, 4096, 1024, 1, 1);
        shape(&columns, F32, 4096, tokens, 1, 1);
        shape(&product, F32, 1024, tokens, 1, 1);
        printf("%s computes: %d\n", ggml_backend_name(backend), ggml_backend_graph_compute_async(backend, &graph));
    }
    graph.nodes = NULL;
    printf("no graph: %d, empty graph: %d\n", ggml_backend_graph_compute_async(backend, NULL), ggml_backend_graph_compute_async(backend, &graph));
    CALL(void, device->slots, 13, device, event);
    CALL(void, backend->slots, 1, backend);
}

int main(int count, char ** words) {
    struct registry * registry = load(words[count - 1]);
    if (registry) {
        struct device * device = CALL(struct device *, registry->slots, 2, registry, (size_t) 0);
        devices(registry);
        buffers(device);
        sizes(device);
        compute(device);
    }
    return 0;
}
