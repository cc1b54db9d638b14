"""What guard costs: llama-bench, llama-server, driver allocations and a PyTorch loop, bare and guarded in turns.

usage: overhead.py [--bench LLAMA_BENCH] [--server LLAMA_SERVER] [--model MODEL] [--alloc ALLOC_PROGRAM] [--torch] --guard LIBRARY [--pairs N]
                   [--answers N] [--words OPTIONS]
`--alloc` is bench/gpu/alloc.c, compiled: `cc -O2 alloc.c -lcuda`. Prints one JSON object.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

from gpu import Engine, guarded, median, tokens

TORCH = """
import time, torch
a = torch.randn(2048, 2048, device='cuda', dtype=torch.bfloat16)
def loop(n):
    keep = []
    for i in range(n):
        keep.append(torch.empty(1 << (10 + i % 14), dtype=torch.uint8, device='cuda'))
        if len(keep) > 32: keep.pop(i % 32)
        a @ a
    torch.cuda.synchronize()
loop(500)
times = []
for _ in range(7):
    start = time.perf_counter(); loop(2000); times.append(time.perf_counter() - start)
print(sorted(times)[3])
"""


def command(arguments, environment):
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=180)
    if done.returncode != 0:
        sys.exit(f"{arguments[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def bench(options, test, environment):
    """The median over the later half of many repetitions: by then the clocks have risen, which an idle card's have not."""
    folder = os.path.dirname(os.path.abspath(options.bench))
    environment = {**environment, "LD_LIBRARY_PATH": folder + ":" + environment.get("LD_LIBRARY_PATH", "")}
    flags = {"pp512": ["-p", "512", "-n", "0", "-r", "100"], "tg128": ["-p", "0", "-n", "128", "-r", "16"]}[test]
    row = json.loads(command([options.bench, "-m", options.model, *flags, "-ngl", "99", "-fa", "1", "-o", "json"], environment))[0]
    return median(row["samples_ts"][len(row["samples_ts"]) // 2:])


def decode(options, environment):
    """Tokens per second of a llama-server, the median of the answers of one process after its first."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["-m", options.model, *"-ngl 99 -fit off -fa on -np 1 -c 4096 --cache-ram 0".split()]
        engine = Engine(options.server, flags, environment, f"{folder}/log")
        try:
            if not engine.ready():
                raise OSError(f"the engine did not load: {engine.said('error', 'plimsoll guard')}")
            answers = [engine.complete(tokens(64, 30000, turn), 256, cache_prompt=False) for turn in range(options.answers)]
            return median([answer["timings"]["predicted_per_second"] for answer in answers[1:]])
        finally:
            engine.stop()


def ratio(rows):
    """Guarded by bare, of the medians of all runs and of the pairs."""
    speed = {kind: median(rows[kind]) for kind in rows}
    pairs = [guarded / bare for bare, guarded in zip(rows["bare"], rows["guarded"], strict=True)]
    return {**speed, "ratio": speed["guarded"] / speed["bare"], "median_of_pairs": median(pairs), "runs": rows}


def turns(pairs, words, library, measure):
    """Measures bare and guarded in ABBA order."""
    rows = {"bare": [], "guarded": []}
    measure(guarded(None, library))  # clocks and caches warm up; not counted
    for pair in range(pairs):
        order = ["bare", "guarded"] if pair % 2 == 0 else ["guarded", "bare"]
        for kind in order:
            rows[kind].append(measure(guarded(None if kind == "bare" else words, library)))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bench")
    parser.add_argument("--server")
    parser.add_argument("--model")
    parser.add_argument("--alloc")
    parser.add_argument("--torch", action="store_true", help="the PyTorch loop, too")
    parser.add_argument("--guard", required=True)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--answers", type=int, default=8, help="answers of each llama-server; the first is not counted")
    parser.add_argument("--words", default="budget=68719476736 pool=ours reuse spill=1073741824")
    options = parser.parse_args()
    result = {"words": options.words, "pairs": options.pairs}
    for test in ("pp512", "tg128") if options.bench else ():
        rows = turns(options.pairs, options.words, options.guard, lambda environment: bench(options, test, environment))
        result[test] = ratio(rows)
    if options.server:
        result["server"] = ratio(turns(options.pairs, options.words, options.guard, lambda environment: decode(options, environment)))
    if options.alloc:
        rows = turns(options.pairs, options.words, options.guard, lambda environment: json.loads(command([options.alloc], environment)))
        result["alloc"] = {
            key: {kind: median([row[key] for row in rows[kind]]) for kind in rows} for key in rows["bare"][0]
        }
    if options.torch:
        rows = turns(options.pairs, options.words, options.guard,
                     lambda environment: float(command([sys.executable, "-c", TORCH], environment)))
        result["torch_loop_seconds"] = ratio(rows)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
