"""llama-bench in many short processes, bare and guarded in turns: medians of all, and of each of the two groups that they fall into.

usage: short.py --bench LLAMA_BENCH --model MODEL --guard LIBRARY [--pairs N] [--seconds N] [--words OPTIONS]
On an H200 single processes fall into two groups 6 % apart, bare and guarded alike, as the card's clocks and the layout of memory
have it. A median over both says which group was met more often, so the groups are told apart (by the widest gap that leaves a
fifth of the runs on either side, if it is wider than 2 %) and compared each with its own. The interval of a ratio is that of 2000
resamplings, 95 %. Prints one JSON object.
"""

import argparse
import json
import os
import random

from gpu import Until, guarded, median
from overhead import command

GAP = 0.02
TESTS = {"pp512": ["-p", "512", "-n", "0"], "tg128": ["-p", "0", "-n", "128"]}
# Of each in one process; the first half lets the clocks rise.
REPEATS = {"pp512": 40, "tg128": 6}
WORDS = "budget=68719476736 pool=ours reuse spill=1073741824"


def once(options, test, environment):
    """One process; the median over the later half of its repetitions."""
    folder = os.path.dirname(os.path.abspath(options.bench))
    environment = {**environment, "LD_LIBRARY_PATH": folder + ":" + environment.get("LD_LIBRARY_PATH", "")}
    said = command([options.bench, "-m", options.model, *TESTS[test], "-r", str(options.repeats[test]), "-ngl", "99", "-fa", "1", "-o", "json"], environment)
    samples = json.loads(said)[0]["samples_ts"]
    return median(samples[len(samples) // 2:])


def border(speeds):
    """Between the two groups; None if there is one."""
    ordered = sorted(speeds)
    least = max(len(ordered) // 5, 2)
    gaps = [(ordered[i] / ordered[i - 1] - 1, i) for i in range(least, len(ordered) - least + 1)]
    gap, at = max(gaps, default=(0, 0))
    return (ordered[at] + ordered[at - 1]) / 2 if gap > GAP else None


def compared(bare, under):
    """Both medians, their ratio, and the interval in which it lies."""
    if len(bare) < 3 or len(under) < 3:
        return {"bare": bare, "guarded": under}
    chance = random.Random(1)
    drawn = sorted(median(chance.choices(under, k=len(under))) / median(chance.choices(bare, k=len(bare))) for _ in range(2000))
    ratio = median(under) / median(bare)
    return {"bare": median(bare), "guarded": median(under), "ratio": ratio, "interval": [drawn[50], drawn[1949]], "runs": [len(bare), len(under)]}


def measure(options, until):
    runs = {test: {"bare": [], "guarded": []} for test in TESTS}
    for test in TESTS:
        once(options, test, guarded(None, options.guard))  # clocks and caches warm up; not counted
    for pair in range(options.pairs):
        if until.passed():
            break
        order = ["bare", "guarded"] if pair % 2 == 0 else ["guarded", "bare"]
        for test in TESTS:
            for kind in order:
                environment = guarded(None if kind == "bare" else options.words, options.guard)
                runs[test][kind].append(once(options, test, environment))
    result = {"words": options.words}
    for test, rows in runs.items():
        between = border(rows["bare"] + rows["guarded"])
        result[test] = {"all": compared(rows["bare"], rows["guarded"]), "border": between, "each": rows}
        if between:
            for name, inside in (("slow", lambda speed: speed < between), ("fast", lambda speed: speed >= between)):
                result[test][name] = compared(*[[speed for speed in rows[kind] if inside(speed)] for kind in ("bare", "guarded")])
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--guard", required=True)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--words", default=WORDS)
    parser.set_defaults(repeats=REPEATS)
    options = parser.parse_args()
    print(json.dumps(measure(options, Until(options.seconds)), indent=1))


if __name__ == "__main__":
    main()
