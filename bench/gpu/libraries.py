#!/usr/bin/env python3
"""Whether programs of CUDA 13 run under a budget as they do without one: quiet while they stay within it, and refused where they pass it.

usage: libraries.py [--budget GIB] [--out FILE] PLIMSOLL [NAME...]

Each program computes something and prints it, then takes memory until it is refused, frees it, and computes again. It runs bare, under a budget
that it does not meet, and under one that it does. What the machine lacks is skipped. Prints one JSON object, and ends with 1 if any row is not
as it should be.
"""

import argparse
import json
import subprocess
import sys

# Each defines `compute()`, a number; `take(gib)`, which holds memory; `refused`, the error; `release()`.
SQUARE = """
def compute():
    a = ARRAYS.arange(1 << 20, dtype=ARRAYS.float32ON_CARD).reshape(1024, 1024) / (1 << 20)
    return float((a @ a).sum())
"""
TORCH = """
import torch
version, refused, held = torch.__version__, torch.cuda.OutOfMemoryError, []
def take(gib): held.append(torch.empty(gib << 30, dtype=torch.uint8, device='cuda'))
def release(): held.clear(); torch.cuda.empty_cache()
""" + SQUARE.replace("ARRAYS", "torch").replace("ON_CARD", ", device='cuda'")
CUPY = """
def take(gib): held.append(cupy.empty(gib << 30, dtype=cupy.uint8))
""" + SQUARE.replace("ARRAYS", "cupy").replace("ON_CARD", "")
JAX = """
import os
os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
import jax, jax.numpy as jnp
version, refused, held = jax.__version__, jax.errors.JaxRuntimeError, []
def take(gib): held.append(jnp.full(gib << 30, 1, dtype=jnp.uint8).block_until_ready())
def release(): held.clear()
""" + SQUARE.replace("ARRAYS", "jnp").replace("ON_CARD", "")
DRIVER = """
class refused(Exception): pass
held = []
def compute():
    at = allocate(1 << 20); back = filled(at, 1 << 20); free(at)
    return float(sum(back))
def take(gib): held.append(allocate(gib << 30))
def release():
    while held: free(held.pop())
"""


def torch(setting):
    return f"import os\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = os.environ['PYTORCH_ALLOC_CONF'] = '{setting}'\n{TORCH}"


PROGRAMS = {
    "torch": TORCH,
    "torch_expandable": torch("expandable_segments:True"),
    "torch_async": torch("backend:cudaMallocAsync"),
    "cupy": """
import cupy
version, refused, held = cupy.__version__, cupy.cuda.memory.OutOfMemoryError, []
def release(): held.clear(); cupy.get_default_memory_pool().free_all_blocks()
""" + CUPY,
    "cupy_async": """
import cupy
cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
version, refused, held = cupy.__version__, (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError), []
def release(): held.clear(); cupy.cuda.runtime.deviceSynchronize()
""" + CUPY,
    "jax": "import os\nos.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'false'\n" + JAX,
    "jax_preallocated": JAX,
    "numba": """
import gc, numba, numpy
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError as refused
version, held = numba.__version__, []
@cuda.jit
def doubled(a):
    at = cuda.grid(1)
    if at < a.size: a[at] *= 2
def compute():
    a = cuda.to_device(numpy.arange(1 << 16, dtype=numpy.float64)); doubled[256, 256](a); return float(a.copy_to_host().sum())
def take(gib): held.append(cuda.device_array(gib << 30, dtype=numpy.uint8))
def release(): held.clear(); gc.collect(); cuda.current_context().deallocations.clear()
""",
    "bindings": """
from cuda.bindings import driver, __version__ as version
def must(result):
    code, *values = result
    if code == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY: raise refused(str(code))
    assert code == driver.CUresult.CUDA_SUCCESS, code
    return values[0] if values else None
must(driver.cuInit(0)); must(driver.cuCtxSetCurrent(must(driver.cuDevicePrimaryCtxRetain(0))))
def allocate(size): return must(driver.cuMemAlloc(size))
def free(at): must(driver.cuMemFree(at))
def filled(at, size):
    back = bytearray(size); must(driver.cuMemsetD8(at, 7, size)); must(driver.cuMemcpyDtoH(back, at, size)); return back
""" + DRIVER,
    "driver": """
import ctypes
cuda, version = ctypes.CDLL('libcuda.so.1'), 'libcuda.so.1'
def must(code):
    if code == 2: raise refused(code)
    assert code == 0, code
context = ctypes.c_void_p()
must(cuda.cuInit(0)); must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)); must(cuda.cuCtxSetCurrent(context))
def allocate(size):
    at = ctypes.c_uint64(); must(cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size))); return at
def free(at): must(cuda.cuMemFree_v2(at))
def filled(at, size):
    back = ctypes.create_string_buffer(size); must(cuda.cuMemsetD8_v2(at, ctypes.c_ubyte(7), ctypes.c_size_t(size)))
    must(cuda.cuMemcpyDtoH_v2(back, at, ctypes.c_size_t(size))); return back.raw
""" + DRIVER,
}
# What follows each of them.
COURSE = """
import json, sys
MOST = int(sys.argv[1])
said = {'version': version, 'computed': compute(), 'taken_gib': 0, 'error': None}
print('STAGE quiet', file=sys.stderr, flush=True)
try:
    for _ in range(MOST):
        take(1)
        said['taken_gib'] += 1
except refused as error:
    said['error'] = f'{type(error).__module__}.{type(error).__qualname__}'
    error = None
print('STAGE taken', file=sys.stderr, flush=True)
release()
said['again'] = compute()
print('RESULT ' + json.dumps(said), flush=True)
"""
# GiB that each program tries to take.
WANTED = 12


def run(before, program):
    """What a program printed, and guard's lines before anything was refused and after."""
    words = [*before, sys.executable, "-c", program + COURSE, str(WANTED)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=180)
    except subprocess.TimeoutExpired:
        return {"failed": "late"}
    results = [line[7:] for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not results:
        return {"failed": done.returncode, "stderr": done.stderr[-1500:]}
    early, _, late = done.stderr.partition("STAGE quiet")
    ours = [[line[:300] for line in part.splitlines() if "plimsoll" in line] for part in (early, late)]
    return {**json.loads(results[0]), "status": done.returncode, "said_before": ours[0], "said_after": ours[1]}


def faults(name, bare, wide, narrow, budget):
    """What is not as it should be."""
    for kind, row in (("bare", bare), ("wide", wide), ("narrow", narrow)):
        if "failed" in row:
            yield f"{kind} failed: {row['failed']}"
            return
        if row["status"] or row["computed"] != bare["computed"] or row["again"] != bare["computed"]:
            yield f"{kind} computed {row['computed']} and {row['again']}, status {row['status']}"
    if wide["error"] or wide["taken_gib"] != bare["taken_gib"]:
        yield f"took {wide['taken_gib']} GiB of a budget that has room for all"
    # The driver's line of a peak is no complaint.
    if any("guard" in line for line in wide["said_before"] + wide["said_after"]):
        yield "is not quiet under a budget that it does not meet"
    if any("guard" in line for line in narrow["said_before"]):
        yield "is not quiet before it is refused"
    if not narrow["error"]:
        yield f"took {narrow['taken_gib']} GiB under a budget of {budget}"
    elif not 1 <= narrow["taken_gib"] <= budget:
        yield f"was refused after {narrow['taken_gib']} GiB under a budget of {budget}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=int, default=6)
    parser.add_argument("--out")
    parser.add_argument("plimsoll")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    rows = {}
    for name in options.names or PROGRAMS:
        limited = lambda gib: [options.plimsoll, "run", "--card", f"0={gib}GiB", "--"]
        ways = {"bare": [], "wide": limited(64), "narrow": limited(options.budget)}
        found = {way: run(before, PROGRAMS[name]) for way, before in ways.items()}
        lacks = "ModuleNotFoundError" in found["bare"].get("stderr", "")
        wrong = [] if lacks else list(faults(name, *found.values(), options.budget))
        rows[name] = {"skipped": True} if lacks else {"wrong": wrong, **found}
        print(name, "skipped" if lacks else wrong or "as it should be", json.dumps(found["narrow"])[:400], flush=True)
        if options.out:
            with open(options.out, "w") as file:
                json.dump(rows, file, indent=1)
    if not options.out:
        print(json.dumps(rows, indent=1))
    sys.exit(any(row.get("wrong") for row in rows.values()))


if __name__ == "__main__":
    main()
