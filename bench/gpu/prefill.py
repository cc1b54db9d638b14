"""How fast one long prompt is evaluated by an engine whose pool grows with it: bare and served by guard, in turns.

usage: prefill.py --server LLAMA_SERVER [--server-no-vmm LLAMA_SERVER] --model MODEL --guard LIBRARY [--pairs N]
Every run is a new process that has answered a short prompt before, so that lazily loaded kernels are not counted. The prompt is then evaluated once
more, when nothing grows any longer: no pool can be faster than that, whatever it does (`ceiling`, as a multiple of bare). Prints one JSON object.
"""

import argparse
import json
import tempfile

from gpu import Engine, Until, guarded, median, tokens, used

VOCABULARY = 32000
FLAGS = "-ngl 99 -c 65536 -b 2048 -fa on -np 1 -fit off --cache-ram 0".split()


def run(options, binary, kind, ubatch, words):
    with tempfile.TemporaryDirectory() as folder:
        flags = ["-m", options.model, *FLAGS, "-ub", str(ubatch), "-ctk", kind, "-ctv", kind]
        engine = Engine(binary, flags, guarded(words, options.guard), f"{folder}/log")
        try:
            if not engine.ready():
                raise OSError(f"the engine did not load: {engine.said('error', 'plimsoll guard')}")
            engine.complete(tokens(600, VOCABULARY, 9), 2)
            first, again = (engine.complete(tokens(options.depth, VOCABULARY), 2, cache_prompt=False)["timings"]["prompt_per_second"] for _ in range(2))
            return {"per_second": first, "again": again, "mib": sum(used(engine.process.pid).values())}
        finally:
            engine.stop()


def ways(options):
    ways = [("VMM hidden, q8_0 ub 512", options.server, "q8_0", 512, "hide-vmm", "pool=ours hide-vmm"),
            ("VMM hidden, q4_0 ub 128", options.server, "q4_0", 128, "hide-vmm", "pool=ours hide-vmm")]
    if options.server_no_vmm:
        ways.append(("NO_VMM build, q8_0 ub 512", options.server_no_vmm, "q8_0", 512, None, "pool=ours"))
    return ways


def measure(options, until):
    """Pairs of new processes in turns, all ways alternating, until time is up."""
    rows = {name: {"bare": [], "served": []} for name, *_ in ways(options)}
    for pair in range(options.pairs):
        for name, binary, kind, ubatch, bare, served in ways(options):
            for way in ("bare", "served") if pair % 2 == 0 else ("served", "bare"):
                if not until.passed() or len(rows[name]["bare"]) != len(rows[name]["served"]):
                    rows[name][way].append(run(options, binary, kind, ubatch, bare if way == "bare" else served))
    result = {}
    for name, runs in rows.items():
        speed = {way: median([row["per_second"] for row in runs[way]]) for way in runs if runs[way]}
        ratio = {"ratio": speed["served"] / speed["bare"]} if len(speed) == 2 else {}
        if "bare" in speed:
            ratio["ceiling"] = median([row["again"] for row in runs["bare"] + runs["served"]]) / speed["bare"]
        result[name] = {**speed, **ratio, "runs": runs}
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--server-no-vmm")
    parser.add_argument("--model", required=True)
    parser.add_argument("--guard", required=True)
    parser.add_argument("--depth", type=int, default=61440)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=540)
    options = parser.parse_args()
    print(json.dumps(measure(options, Until(options.seconds)), indent=1))


if __name__ == "__main__":
    main()
