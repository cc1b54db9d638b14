"""Times single operations of a ggml backend: matrix products, attention, norms and sums.

usage: kernels.py LIBRARIES OUT SECONDS [cpu]
"""
import array
import ctypes
import json
import sys
import time
from ctypes import c_bool, c_float, c_int, c_int64, c_size_t, c_void_p

folder, out, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
cpu = len(sys.argv) > 4
end = time.monotonic() + seconds
base = ctypes.CDLL(f"{folder}/libggml-base.so", ctypes.RTLD_GLOBAL)
TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14, "Q5_K": 13, "MXFP4": 39, "I32": 26}
BYTES = {"F32": 4, "F16": 2, "Q4_0": 18 / 32, "Q8_0": 34 / 32, "Q4_K": 144 / 256, "Q6_K": 210 / 256, "MXFP4": 17 / 32, "Q5_K": 176 / 256}


class Params(ctypes.Structure):
    _fields_ = [("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool)]


def function(name, result, *arguments, library=base):
    f = getattr(library, name)
    f.restype, f.argtypes = result, arguments
    return f


P, I = c_void_p, c_int64
init = function("ggml_init", P, Params)
free = function("ggml_free", None, P)
tensor = function("ggml_new_tensor_4d", P, P, c_int, I, I, I, I)
mul_mat = function("ggml_mul_mat", P, P, P, P)
mul_mat_id = function("ggml_mul_mat_id", P, P, P, P, P)
swiglu = function("ggml_swiglu_split", P, P, P, P)
permute = function("ggml_permute", P, P, P, c_int, c_int, c_int, c_int)
flash = function("ggml_flash_attn_ext", P, P, P, P, P, P, c_float, c_float, c_float)
rms = function("ggml_rms_norm", P, P, P, c_float)
add = function("ggml_add", P, P, P, P)
mul = function("ggml_mul", P, P, P, P)
new_graph = function("ggml_new_graph_custom", P, P, c_size_t, c_bool)
expand = function("ggml_build_forward_expand", None, P, P)
alloc = function("ggml_backend_alloc_ctx_tensors", P, P, P)
free_buffer = function("ggml_backend_buffer_free", None, P)
clear = function("ggml_backend_buffer_clear", None, P, ctypes.c_uint8)
compute = function("ggml_backend_graph_compute", c_int, P, P)
synchronize = function("ggml_backend_synchronize", None, P)
set_tensor = function("ggml_backend_tensor_set", None, P, P, c_size_t, c_size_t)
if cpu:
    backend = function("ggml_backend_cpu_init", P, library=ctypes.CDLL(f"{folder}/libggml-cpu.so"))()
else:
    backend = function("ggml_backend_cuda_init", P, c_int, library=ctypes.CDLL(f"{folder}/libggml-cuda.so"))(0)
rows = []


def timed(kind, n, build, **about):
    """Microseconds of one of `n` operations."""
    n = 2 if cpu else n
    if time.monotonic() > end or (cpu and about.get("cells", 0) * about.get("tokens", 1) > 8192):
        return
    context = init(Params(64 << 20, None, True))
    later = []
    new = lambda of, *shape: tensor(context, TYPES[of], *(list(shape) + [1] * (4 - len(shape))))
    graph = new_graph(context, 16384, False)
    build(context, new, lambda node: expand(graph, node), n, later)
    buffer = alloc(context, backend)
    if not buffer:
        rows.append({"kind": kind, **about, "error": "no memory"})
        free(context)
        return
    clear(buffer, 0)
    for node, data in later:
        set_tensor(node, data.buffer_info()[0], 0, len(data) * data.itemsize)
    synchronize(backend)
    for _ in range(0 if cpu else 4):
        compute(backend, graph)
    synchronize(backend)
    best = []
    for _ in range(1 if cpu else 3):
        count, start = 0, time.perf_counter()
        while count < 1 or time.perf_counter() - start < 0.008:
            compute(backend, graph)
            synchronize(backend)
            count += 1
        best.append((time.perf_counter() - start) / count / n * 1e6)
    rows.append({"kind": kind, **about, "n": n, "us": round(sorted(best)[len(best) // 2], 4)})
    free_buffer(buffer)
    free(context)


def vec(of, height, width, tokens=1):
    size = height * width * BYTES[of]
    n = int(max(4, min(256, 0.8e9 // size)))

    def build(c, new, done, n, later):
        x = new("F32", width, tokens)
        for _ in range(n):
            done(mul_mat(c, new(of, width, height), x))

    timed("product", n, build, type=of, rows=height, columns=width, tokens=tokens)


def gated(of, height, width):
    n = int(max(4, min(256, 0.4e9 // (height * width * BYTES[of]))))

    def build(c, new, done, n, later):
        x = new("F32", width)
        for _ in range(n):
            gate, up = new(of, width, height), new(of, width, height)
            done(swiglu(c, mul_mat(c, gate, x), mul_mat(c, up, x)))

    timed("gated", n, build, type=of, rows=height, columns=width)


def routed(of, height, width, used, count, tokens=1, spread=False):
    n = int(max(4, min(96, 6e9 // (height * width * BYTES[of] * count))))

    def build(c, new, done, n, later):
        x, ids = new("F32", width, 1, tokens), new("I32", used, tokens)
        later.append((ids, array.array("i", [(i + (t * used if spread else 0)) % count for t in range(tokens) for i in range(used)])))
        for _ in range(n):
            done(mul_mat_id(c, new(of, width, height, count), x, ids))

    timed("routed", n, build, type=of, rows=height, columns=width, used=used, experts=count, tokens=tokens, spread=spread)


def attention(d, heads, kv, cells, of, tokens=1):
    size = 2 * d * kv * cells * BYTES[of]
    n = int(max(2, min(24, 3e9 // size))) if tokens == 1 else 2

    def build(c, new, done, n, later):
        mask = new("F16", cells, tokens)
        for _ in range(n):
            q = permute(c, new("F32", d, heads, tokens), 0, 2, 1, 3)
            k, v = (permute(c, new(of, d, kv, cells), 0, 2, 1, 3) for _ in range(2))
            done(flash(c, q, k, v, mask, d**-0.5, 0.0, 0.0))

    timed("attention", n, build, length=d, heads=heads, heads_kv=kv, cells=cells, cache=of, tokens=tokens)


def small(width):
    def norms(c, new, done, n, later):
        x, w = new("F32", width), new("F32", width)
        for _ in range(n):
            x = mul(c, rms(c, x, 1e-5), w)
        done(x)

    def sums(c, new, done, n, later):
        x, w = new("F32", width), new("F32", width)
        for _ in range(n):
            x = add(c, x, w)
            x = mul(c, rms(c, x, 1e-5), w)
        done(x)

    timed("norm", 256, norms, width=width)
    timed("sum and norm", 128, sums, width=width)


for width in (1024, 2048, 4096, 8192):
    small(width)
SHAPES = [(512, 2048), (1024, 1024), (1024, 2048), (2048, 2048), (4096, 2048), (768, 2048), (2048, 768), (1024, 4096), (4096, 4096), (6144, 2560),
          (16384, 4096), (4096, 14336), (1024, 8192), (8192, 8192), (32000, 2048), (152000, 2048), (128000, 4096), (2560, 10240)]
for of in ("Q4_K", "Q6_K", "Q8_0", "MXFP4", "Q4_0", "Q5_K", "F32"):
    for shape in SHAPES:
        if (of != "F32" or shape[0] <= 2048) and (shape[1] % 256 == 0):
            vec(of, *shape)
for of, shape in (("Q4_K", (14336, 4096)), ("Q4_K", (6144, 2048)), ("Q8_0", (6144, 2048)), ("Q4_K", (2048, 1024)), ("Q4_K", (22528, 8192))):
    gated(of, *shape)
for of in ("Q4_K", "Q8_0", "MXFP4", "Q6_K"):
    for shape in ((768, 2048, 8, 32), (2048, 768, 8, 32), (1024, 2048, 8, 32), (2816, 2816, 4, 16), (512, 1536, 6, 32)):
        routed(of, *shape)
routed("Q8_0", 768, 2048, 1, 32)
routed("Q8_0", 768, 2048, 8, 128)
HEADS = [(128, 32, 8), (128, 32, 4), (128, 32, 32), (128, 64, 8), (128, 16, 8), (64, 32, 8), (64, 64, 8), (256, 8, 4), (256, 16, 4), (256, 16, 2), (96, 32, 32), (96, 24, 8),
         (80, 32, 8), (128, 40, 8), (128, 12, 4), (512, 16, 2)]
for cells in (256, 1024, 4096, 7936, 8192, 16384, 32768):
    for of in ("F16", "Q8_0"):
        for d, heads, kv in HEADS:
            if d % 32 == 0 or of == "F16":
                attention(d, heads, kv, cells, of)
for of in ("Q4_K", "Q6_K", "Q8_0"):
    for shape in ((512, 2048), (1024, 4096), (2048, 2048), (4096, 4096), (14336, 4096), (4096, 14336), (8192, 8192), (22528, 8192), (6144, 2560)):
        vec(of, *shape, tokens=512)
vec("Q4_K", 4096, 4096, tokens=2048)
vec("F32", 128, 2048, tokens=512)
for of in ("Q4_K", "Q8_0", "MXFP4"):
    for spread in (False, True):
        routed(of, 768, 2048, 8, 128, 512, spread)
        routed(of, 2048, 768, 8, 128, 512, spread)
        routed(of, 2816, 2816, 4, 32, 512, spread)
for cells in (512, 4096, 16384, 32768):
    for of in ("F16", "Q8_0"):
        for d, heads, kv in HEADS:
            if d % 32 == 0 or of == "F16":
                attention(d, heads, kv, cells, of, 512)
with open(out, "w", encoding="utf-8") as file:
    file.write('{"rows": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]}\n")
