"""Each cause of `plimsoll doctor`, provoked with a real program. An act returns the log that it left, and what else is known (`context`).

llama.cpp runs under budgets of guard's, so that little memory is taken; PyTorch's programs are files, so that their tracebacks quote them. What needs
the card's own end (a neighbour, a sick NVML) fills it with plain allocations. Managed memory stays far below what is free.
"""

import glob
import os
import shutil
import subprocess
import sys

import cards
import torch_oom
from gpu import Engine, guarded, tokens
from pool import HIDDEN, VOCABULARY

MIB = 1 << 20
BASE = "-ngl 99 -np 1 -fit off --cache-ram 0"


class Lacking(Exception):
    """The machine has not what the act needs."""


def run_engine(session, build, folder, flags, words, prompt=0, extra=None, model="m8"):
    """A llama-server under these words of guard's (None: without it), asked once where a prompt is given: its log and speed."""
    line = f"{BASE} {flags}"
    environment = {**guarded(words, session.guard, folder), **(extra or {})}
    engine = Engine(build.server, ["-m", session.model(model), *line.split()], environment, f"{folder}/log")
    speed = None
    try:
        if engine.ready(90) and prompt:
            answer = engine.complete(tokens(prompt, VOCABULARY), 16, cache_prompt=False)
            speed = answer["timings"]["predicted_per_second"]
    except OSError:
        pass  # how it died is in its log
    engine.stop()
    with open(f"{folder}/log", errors="replace") as log:
        return {"log": log.read(), "context": [f"llama-server -m {model}.gguf {line}"], "tokens_per_second": speed}


def terms(session, build, flags, **more):
    plan = session.plan(build, ["-m", session.model("m8"), *BASE.split(), *flags.split()], specs=[session.cards[0].spec(**more)])
    return plan["cards"][0]


def short_of(term, before):
    """An act whose budget holds the terms before this one, and half of it; of the first, most of it without the context."""
    def act(session, build, folder, flags):
        here = terms(session, build, flags)["terms"]
        budget = here["context"] + sum(here[name] for name in before) + here[term] // 2 if before else here[term] * 9 // 10
        return run_engine(session, build, folder, flags, f"budget={budget}")
    return act


def pool_growth(session, build, folder, flags):
    here = terms(session, build, flags, pool="legacy")
    budget = here["loaded"] + (here["peak"] - here["loaded"]) // 4
    return run_engine(session, build, folder, flags, f"budget={budget} {HIDDEN}", session.setting("growth_depth", 59000))


def python(folder, name, program, environment, arguments=()):
    """A PyTorch program of its own file: what it printed and how it ended."""
    with open(f"{folder}/{name}.py", "w") as file:
        file.write(program)
    done = subprocess.run([sys.executable, f"{folder}/{name}.py", *arguments], env=environment, capture_output=True, text=True, timeout=180)
    return {"log": done.stdout + done.stderr, "context": [], "status": done.returncode}


def torch_there():
    if subprocess.run([sys.executable, "-c", "import torch; torch.zeros(1, device='cuda')"], capture_output=True).returncode != 0:
        raise Lacking("needs PyTorch on a card")


def foreign_process(session, build, folder, flags):
    """A neighbour that has nearly all of the card, and an engine that finds the rest too small."""
    torch_there()
    neighbour = subprocess.Popen([sys.executable, "-c", cards.FILL, "0", "2048"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        free = neighbour.stdout.readline().strip()
        found = run_engine(session, build, folder, flags, None, model="l8")
    finally:
        neighbour.communicate("")
    return {**found, "free_mib": free}


STRAY = """
import subprocess, torch
torch.zeros(1, device="cuda")                                  # opens a context on the first card, which nobody meant
weights = torch.empty(2 << 30, dtype=torch.uint8, device="cuda:1")
print(subprocess.run(["nvidia-smi"], capture_output=True, text=True).stdout)
"""


def wrong_device_context(session, build, folder, flags):
    if len(session.cards) < 2:
        raise Lacking("needs two cards")
    torch_there()
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return {**python(folder, "serve", STRAY, environment), "context": ["the model is meant for GPU 1 alone: device cuda:1"]}


FRAGMENTS = """
import torch
keep, drop = [], []
while torch.cuda.memory_reserved() < 4800 << 20:               # segments of 20 MiB, of which one block in five stays
    for number in range(5):
        (drop if number else keep).append(torch.empty(4 << 20, dtype=torch.uint8, device="cuda"))
drop.clear()
batch = torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
"""


def fragmentation(session, build, folder, flags):
    torch_there()
    return python(folder, "train", FRAGMENTS, guarded(f"budget={6 << 30}", session.guard, folder))


def sick_nvml(folder):
    """nvml_sick.c with a stand-in for every other function that this toolkit's header names."""
    headers = [*glob.glob("/usr/local/cuda*/include/nvml.h"), *glob.glob("/usr/local/cuda*/targets/*/include/nvml.h"), *glob.glob("/usr/include/nvml.h")]
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not headers or not compiler:
        raise Lacking("needs nvml.h and a C compiler")
    here = os.path.dirname(os.path.abspath(__file__))
    rest = ("grep -ohE '\\bnvml[A-Z]\\w+ *\\(' \"$1\" | tr -d ' (' | sort -u | while read f; do grep -q \"$f(\" \"$2\" || echo \"int $f(void) { return 3; }\"; done > \"$3\"")
    subprocess.run(["bash", "-c", rest, "rest", headers[0], f"{here}/nvml_sick.c", f"{folder}/rest.c"], check=True)
    subprocess.run([compiler, "-w", "-shared", "-fPIC", f"{here}/nvml_sick.c", f"{folder}/rest.c", "-o", f"{folder}/libnvidia-ml.so.1",
                    "-Wl,-soname,libnvidia-ml.so.1"], check=True, capture_output=True)


def nvml_assert(session, build, folder, flags):
    """PyTorch alone on a card that it fills, where NVML does not answer: guard would keep it from asking."""
    torch_there()
    sick_nvml(folder)
    environment = {**os.environ, "NVML_SICK": "NOT_SUPPORTED",
                   "LD_LIBRARY_PATH": ":".join(filter(None, [folder, os.environ.get("LD_LIBRARY_PATH")]))}
    return python(folder, "fill", torch_oom.PROGRAM, environment)


PINNED = """
import resource, torch
torch.zeros(1, device="cuda")
with open("/proc/self/statm") as pages:                        # as `ulimit -v` does it: 4 GiB more than there is by now
    limit = int(pages.read().split()[0]) * resource.getpagesize() + (4 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
batch = torch.empty(16 << 30, dtype=torch.uint8, pin_memory=True)
"""


def host_pinned(session, build, folder, flags):
    torch_there()
    return python(folder, "loader", PINNED, guarded("", session.guard, folder))


LEAK = """
import torch
class Server:
    history = []                                               # nobody empties it
    def load(self):
        self.history.append(torch.empty(300 << 20, dtype=torch.uint8, device="cuda"))
print("Used memory after each load and unload:")
for turn in range(1, 9):
    Server().load()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    print(f"{turn}. {(total - free) >> 20}MB")
"""


def leak(session, build, folder, flags):
    torch_there()
    return python(folder, "serve", LEAK, guarded(f"budget={8 << 30}", session.guard, folder))


def thrash(session, build, folder, flags):
    """Buffers that do not fit the budget become managed memory, which lies in host memory and is read across the bus: small, and never more than is free."""
    prompt = session.setting("thrash_prompt", 4000)
    os.makedirs(f"{folder}/bare")
    bare = run_engine(session, build, f"{folder}/bare", flags, "", prompt)["tokens_per_second"]
    budget = terms(session, build, flags)["loaded"] * 3 // 4
    slow = run_engine(session, build, folder, flags, f"budget={budget} on-oom=managed", prompt, {"GGML_CUDA_ENABLE_UNIFIED_MEMORY": "1"})
    speed = slow["tokens_per_second"]
    if bare and speed:
        slow["context"].append(f"with GGML_CUDA_ENABLE_UNIFIED_MEMORY=1 the model loads, but generation is {bare / speed:.1f} times slower: {speed:.0f} tokens/s, not {bare:.0f}")
    return {**slow, "bare_tokens_per_second": bare}


# Cause, act, flags; the safest first. Those of the first list need an engine, those of the second PyTorch alone.
ENGINE_ACTS = [
    ("model_too_large", short_of("weights", ()), "-c 4096 -fa on"),
    ("kv_cache_too_large", short_of("kv", ("weights",)), "-c 131072 -fa on"),
    ("compute_buffer_too_large", short_of("compute", ("weights", "kv")), "-c 32768 -fa off -ub 2048 -b 2048"),
    ("pool_growth", pool_growth, "-c 60160 -b 2048 -ub 512 -fa on -ctk q8_0 -ctv q8_0"),
    ("foreign_process", foreign_process, "-c 8192 -fa on"),
    ("unified_memory_thrash", thrash, "-c 8192 -fa on"),
]
TORCH_ACTS = [
    ("wrong_device_context", wrong_device_context, ""),
    ("fragmentation_caching_allocator", fragmentation, ""),
    ("nvml_assert_masks_oom", nvml_assert, ""),
    ("leak", leak, ""),
    ("host_pinned_limit", host_pinned, ""),
]
