"""How fast one long prompt is evaluated by an engine whose pool grows with it: bare and served by guard, in turns.

usage: prefill.py --server LLAMA_SERVER [--server-no-vmm LLAMA_SERVER] --model MODEL --guard LIBRARY [--pairs N]
Every run is a new process that has answered a short prompt before, so that lazily loaded kernels are not counted. Prints one JSON object.
"""

import argparse
import json
import tempfile

from gpu import Engine, guarded, median, tokens, used

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
            timings = engine.complete(tokens(options.depth, VOCABULARY), 2, cache_prompt=False)["timings"]
            return {"per_second": timings["prompt_per_second"], "mib": sum(used(engine.process.pid).values())}
        finally:
            engine.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--server-no-vmm")
    parser.add_argument("--model", required=True)
    parser.add_argument("--guard", required=True)
    parser.add_argument("--depth", type=int, default=61440)
    parser.add_argument("--pairs", type=int, default=4)
    options = parser.parse_args()
    ways = [("VMM hidden, q8_0 ub 512", options.server, "q8_0", 512, "hide-vmm", "pool=ours hide-vmm"),
            ("VMM hidden, q4_0 ub 128", options.server, "q4_0", 128, "hide-vmm", "pool=ours hide-vmm")]
    if options.server_no_vmm:
        ways.append(("NO_VMM build, q8_0 ub 512", options.server_no_vmm, "q8_0", 512, None, "pool=ours"))
    result = {}
    for name, binary, kind, ubatch, bare, served in ways:
        rows = {"bare": [], "served": []}
        for pair in range(options.pairs):
            for way in ("bare", "served") if pair % 2 == 0 else ("served", "bare"):
                rows[way].append(run(options, binary, kind, ubatch, bare if way == "bare" else served))
        speed = {way: median([row["per_second"] for row in rows[way]]) for way in rows}
        result[name] = {**speed, "ratio": speed["served"] / speed["bare"], "runs": rows}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
