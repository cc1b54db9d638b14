#!/usr/bin/env python3
"""Speed of llama-server by the depth of a conversation, when its memory exceeds a budget.

usage: depth.py PLIMSOLL LLAMA_SERVER SPECIMEN OUT CASE...

For each case the engine runs bare, with a planned spill (the cache is divided by position), with weights that overflow first
(`--need`), and with managed memory. The prompts are the same for each, so the answers can be compared with bare's.
"""

import json
import os
import random
import subprocess
import sys
import tempfile

from gpu import Engine

COMMON = "-ngl 99 -fit off -fa on --cache-ram 0 --no-warmup".split()
THREE = ("bare", "positions", "weights")

# Model, flags, budget, depths, ways.
CASES = {
    "f16": ("l8", "-c 65536 -np 1", "8GiB", (1000, 8000, 20000, 30000, 60000), (*THREE, "managed")),
    "f16-6GiB": ("l8", "-c 65536 -np 1", "6GiB", (1000, 4000, 8000), THREE),
    "q8_0": ("l8", "-c 65536 -np 1 -ctk q8_0 -ctv q8_0", "6500MiB", (1000, 8000, 20000, 30000), THREE),
    "np4": ("l8", "-c 65536 -np 4 --no-kv-unified", "8GiB", (1000, 5000, 12000), THREE),
    "windows": ("gemma3-4b", "-c 131072 -np 1", "5GiB", (1000, 8000, 30000), THREE),
    "hybrid": ("qwen35-9b", "-c 131072 -np 1", "8GiB", (1000, 8000, 30000), THREE),
}


def need(plimsoll, model, flags):
    """The planned need, which makes the weights overflow first where it is passed by hand."""
    command = [plimsoll, "plan", "--json", "--model", model, *flags.split(), "-ngl", "99", "-fa", "on"]
    plan = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    terms = plan["cards"][0]["terms"]
    return f"{sum(terms[term] or 0 for term in ('weights', 'kv', 'compute', 'pool')) >> 20}MiB"


def before(plimsoll, way, budget, needed):
    """What stands before the engine on the command line."""
    run = [plimsoll, "run", "--card", f"0={budget}"]
    spill = [*run, "--spill", "16GiB"]
    return {
        "bare": [],
        "positions": [*spill, "--"],
        "weights": [*spill, "--need", needed, "--"],
        "managed": [*run, "--on-oom", "managed", "--"],
    }[way]


def measure(engine, depths, answers):
    """Decode and prefill in tokens per second at each depth, and whether the answer is that of the first engine."""
    for depth in depths:
        random.seed(depth)
        prompt = [random.randrange(300, 20000) for _ in range(depth)]
        answer = engine.complete(prompt, 24, cache_prompt=False)
        times, tokens = answer["timings"], answer["tokens"]
        yield {
            "depth": depth,
            "decode": round(times["predicted_per_second"], 1),
            "prefill": round(times["prompt_per_second"]),
            "same": answers.setdefault(depth, tokens) == tokens,
        }


def finish(engine, row, rows, path):
    """Stops the engine, and writes its row with what guard said."""
    engine.stop()
    row["guard"] = engine.said("plimsoll guard", "plimsoll run")
    rows.append(row)
    print(json.dumps(row), flush=True)
    with open(path, "w") as file:
        json.dump(rows, file, indent=1)


def main():
    plimsoll, server, specimen, out, *cases = sys.argv[1:]
    folder, rows = tempfile.mkdtemp(), []
    os.makedirs(out, exist_ok=True)
    for case in cases:
        model, flags, budget, depths, ways = CASES[case]
        path = f"{folder}/{model}.gguf"
        if not os.path.exists(path):
            subprocess.run([specimen, model, path], check=True, capture_output=True)
            subprocess.run(["sh", "-c", f"cat {path} >/dev/null"], check=True)
        needed, answers = need(plimsoll, path, flags), {}
        for way in ways:
            words = ["-m", path, *flags.split(), *COMMON]
            engine = Engine(server, words, dict(os.environ), f"{out}/{case}-{way}.log", before(plimsoll, way, budget, needed))
            row = {"case": case, "way": way, "depths": []}
            try:
                if not engine.ready():
                    raise OSError("the engine did not start")
                row["depths"].extend(measure(engine, depths, answers))
            except OSError as error:
                row["error"] = str(error)[:300]
            finish(engine, row, rows, f"{out}/depth.json")


if __name__ == "__main__":
    main()
