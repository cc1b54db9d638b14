"""What is still to be measured of guard (issue 3), as parts of `run.py`: spill, llama-bench in short processes, long prompts, PyTorch's own tests."""

import argparse
import json

import prefill
import short
import spill
import torch_tests

# Of PyTorch's own tests, where its file is given: what concerns its allocators. A class in a process, because one that aborts takes its neighbours with it.
PATTERNS = ["TestMemPool", "TestBlockStateAbsorption", "out_of_memory", "oom", "TestCudaMallocAsync", "pinned", "memory", "graph"]
# What a rehearsal makes smaller.
SIZES = ("prompt", "predict", "depth", "pairs", "bench_pairs")


def parts(options, binaries, model):
    same = {"model": model, "guard": options.guard}
    server, bench = f"{binaries}/llama-server", f"{binaries}/llama-bench"
    flags = argparse.ArgumentParser()
    spill.arguments(flags)
    asked = {**vars(flags.parse_args([])), **same, "server": server, "plimsoll": options.plimsoll}
    asked.update(json.loads(options.smaller))
    yield "spill", lambda until: spill.measure(argparse.Namespace(**asked), until)
    words = "budget=68719476736 pool=ours reuse spill=1073741824"
    benched = argparse.Namespace(**same, bench=bench, pairs=asked.get("bench_pairs", 200), words=words)
    yield "bench", lambda until: short.measure(benched, until)
    deep = {**same, "server": server, "server_no_vmm": None, "pairs": 20, "depth": 61440, **json.loads(options.smaller)}
    yield "prefill", lambda until: prefill.measure(argparse.Namespace(**deep), until)
    tests = {"tests": options.torch_tests, "guard": options.guard, "words": torch_tests.WORDS, "pattern": PATTERNS, "seconds": 100}
    yield "torch", lambda until: torch_tests.measure(argparse.Namespace(**tests), until)


def part(name):
    """One of them, as `run.py` measures parts."""
    def measure(session, build, until, keep):
        options = argparse.Namespace(guard=session.guard, plimsoll=session.plimsoll, torch_tests=session.setting("torch_tests", None),
                                     smaller=json.dumps({key: session.smaller[key] for key in SIZES if key in session.smaller}))
        act = dict(parts(options, build.folder if build else "", session.model("m8", "--dense")))[name]
        return {**act(until), "complete": True}
    return measure


def table(name, result):
    kept = ", ".join(key for key in result if key not in ("complete", "failed"))
    return [f"{name}: {kept}"[:200]]
