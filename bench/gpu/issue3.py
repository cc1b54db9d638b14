"""What is still to be measured of guard (issue 3), as parts of `run.py`: spill, llama-bench in short processes, long prompts, PyTorch's own tests."""

import argparse
import json

import prefill
import short
import spill
import torch_tests

# Of PyTorch's own tests, where its file is given: what concerns its allocators first, then all others of `TestCuda`. A group in a process, because one
# test that aborts takes its neighbours with it.
PATTERNS = ["TestMemPool", "TestBlockStateAbsorption", "TestCudaMallocAsync", "out_of_memory", "*TestCuda.*oom*", "*TestCuda.*pinned*", "*TestCuda.*memory*",
            "*TestCuda.*graph*", "TestCudaOptims", *(f"*TestCuda.test_[{letters}]*" for letters in ("a-b", "c", "d-f", "g-l", "m-o", "p-r", "s-z"))]
# An evaluation of 512 tokens of the large model takes 37 ms, and 128 tokens 0.65 s.
LARGE = {"pp512": 20, "tg128": 3}


def spilled(session, build, until):
    flags = argparse.ArgumentParser()
    spill.arguments(flags)
    asked = vars(flags.parse_args([]))
    asked.update({key: session.setting(key, asked[key]) for key in ("prompt", "predict")}, model=session.model("m8", "--dense"),
                 guard=session.guard, server=build.server, plimsoll=session.plimsoll)
    return spill.measure(argparse.Namespace(**asked), until)


def benched(model, repeats):
    def measure(session, build, until):
        return short.measure(argparse.Namespace(model=session.model(*model), guard=session.guard, bench=build.bench, words=short.WORDS,
                                                pairs=session.setting("bench_pairs", 200), repeats=repeats), until)
    return measure


def prefilled(session, build, until):
    return prefill.measure(argparse.Namespace(model=session.model("m8", "--dense"), guard=session.guard, server=build.server, server_no_vmm=None,
                                              pairs=session.setting("pairs", 20), depth=session.setting("depth", 61440)), until)


def torch_tested(session, build, until):
    return torch_tests.measure(argparse.Namespace(tests=session.setting("torch_tests", None), guard=session.guard, words=torch_tests.WORDS,
                                                  pattern=session.setting("torch_patterns", PATTERNS), seconds=150), until)


# By name, without the engine's build: what measures it.
MEASURES = {"spill": spilled, "bench": benched(("m8", "--dense"), short.REPEATS), "bench-8b": benched(("l8",), LARGE), "prefill": prefilled,
            "torch": torch_tested}


def part(name):
    """One of them, as `run.py` measures parts."""
    return lambda session, build, until, keep: {**MEASURES[name](session, build, until), "complete": True}


def table(name, result):
    """What a part came to, in a line for each thing compared."""
    lines = []
    for test in short.REPEATS:
        whole = result.get(test, {}).get("all", {})
        if "ratio" in whole:
            low, high = whole["interval"]
            lines.append(f"  {test}: {whole['guarded']:.1f} guarded, {whole['bare']:.1f} bare: {whole['ratio']:.4f} ({low:.4f} to {high:.4f}), "
                         f"{whole['runs'][0]} pairs")
    for way, row in result.items():
        if isinstance(row, dict) and "ceiling" in row:
            lines.append(f"  {way}: {row['served']:.0f} served, {row['bare']:.0f} bare: {row.get('ratio', 0):.4f}; "
                         f"where nothing grows {row['ceiling']:.4f} of bare")
    for row in result.get("rows", []):
        if "tokens_per_second" in row:
            lines.append(f"  {row['below_percent']} % below, {row['variant']}: {row['tokens_per_second']:.1f} tokens/s, "
                         f"{row.get('of_limit', 0):.3f} of the limit, same answer: {row['same_answer']}")
    if "differences" in result:
        lines.append(f"  bare {result['bare']}, guarded {result['guarded']}, {len(result['differences'])} differ: {json.dumps(result['differences'])[:600]}")
    return [f"{name}:", *lines]
