"""What ggml's legacy pool takes as a prompt grows, as it is, as the pool with virtual memory is, and as guard serves it.

usage: pool.py --server LLAMA_SERVER [--server-no-vmm LLAMA_SERVER] --model MODEL --guard LIBRARY [--quick]
The engine is one of before llama.cpp PR 23907 (about b9400), in which attention over a quantised KV takes memory of the pool that grows with
the prompt; b8799 and model m8 are what data/measured compares with. Prints one JSON object. About five minutes on an H200; `--quick`
leaves out the repetitions.
"""

import argparse
import json
import tempfile
import time

from gpu import Engine, Memory, guarded, median, page, tokens

VOCABULARY = 32000
FLAGS = "-ngl 99 -c 65536 -b 2048 -fa on -np 1 -fit off --cache-ram 0".split()
CONFIGURATIONS = {"q8_0 ub 512": ("q8_0", 512), "q4_0 ub 128": ("q4_0", 128)}
HIDDEN, SERVED = "hide-vmm", "pool=ours hide-vmm"


class Server:
    """One engine, and what the card and guard say of it."""

    def __init__(self, options, binary, kind, ubatch, words, graphs=True):
        self.folder = tempfile.TemporaryDirectory()
        environment = guarded(words, options.guard, self.folder.name)
        if not graphs:
            environment["GGML_CUDA_DISABLE_GRAPHS"] = "1"
        flags = ["-m", options.model, *FLAGS, "-ub", str(ubatch), "-ctk", kind, "-ctv", kind, *options.flags.split()]
        self.held = Memory()
        self.engine = Engine(binary, flags, environment, f"{self.folder.name}/log")
        if not self.engine.ready():
            raise OSError(f"the engine did not load: {self.engine.said('error', 'plimsoll guard')}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.engine.stop()
        self.folder.cleanup()

    def memory(self):
        return self.held.of(self.engine.process.pid)

    def page(self):
        return page(self.folder.name, self.engine.process.pid)

    def grow(self, prompt, step, cached=True):
        """Evaluates a prompt in growing parts; its speed in tokens a second, and the last answer."""
        evaluated, milliseconds, answer = 0, 0.0, None
        for end in [*range(step, len(prompt), step), len(prompt)]:
            last = end == len(prompt)
            answer = self.engine.complete(prompt[:end], 16 if last else 1, cache_prompt=cached)
            evaluated += answer["timings"]["prompt_n"]
            milliseconds += answer["timings"]["prompt_ms"]
        return 1000 * evaluated / milliseconds, answer["tokens"]


def depth(options, binary, configuration, words, graphs=True, repetitions=2):
    """One prompt grown to the full depth, then prompts of that length from nothing."""
    with Server(options, binary, *CONFIGURATIONS[configuration], words, graphs) as server:
        prompt = tokens(options.depth, VOCABULARY)
        row = {"words": words, "graphs": graphs, "loaded_mib": server.memory()}
        row["growing_per_second"], row["answer"] = server.grow(prompt, 8192)
        row["grown_mib"] = server.memory()
        speeds = [server.grow(tokens(options.depth, VOCABULARY, salt), options.depth, False)[0] for salt in range(2, 2 + repetitions)]
        row["prefill_per_second"] = median(speeds) if speeds else None
        row["prefills"] = speeds
        row["after_mib"] = server.memory()
        row["page"] = server.page()
        row["said"] = server.engine.said("plimsoll guard")
        return row


def cycles(options, binary, words, count, length):
    """Prompts that grow and start again: memory after each."""
    with Server(options, binary, *CONFIGURATIONS["q8_0 ub 512"], words) as server:
        memory = []
        for cycle in range(count):
            server.grow(tokens(length, VOCABULARY, 100 + cycle), length // 2)
            memory.append(server.memory())
        return {"words": words, "tokens": length, "mib": memory, "page": server.page(), "said": server.engine.said("plimsoll guard")}


def rows(options):
    """Every engine and way, in the order in which they are worth having if time runs out."""
    vmm, none = options.server, options.server_no_vmm
    for configuration in CONFIGURATIONS:
        yield "legacy, VMM hidden", configuration, vmm, HIDDEN, True
        yield "served, VMM hidden", configuration, vmm, SERVED, True
        yield "VMM pool", configuration, vmm, None, True
        if none:
            yield "legacy, NO_VMM build", configuration, none, None, True
            yield "served, NO_VMM build", configuration, none, "pool=ours", True
    yield "legacy, VMM hidden", "q8_0 ub 512", vmm, HIDDEN, False
    yield "served, VMM hidden", "q8_0 ub 512", vmm, SERVED, False


def attempt(act, *arguments, **named):
    """What came of it, or how it failed: one bad row must not cost the others."""
    try:
        return act(*arguments, **named)
    except (OSError, KeyError, ValueError) as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def judge(result):
    """Answers that differ from the first of their configuration, and speeds against the legacy pool of the same build."""
    answers = {}
    bare = {}
    for row in result["rows"]:
        if "answer" not in row:
            continue
        row["same_answer"] = row["answer"] == answers.setdefault(row["configuration"], row["answer"])
        key = (row["configuration"], row["variant"].split(", ")[-1], row["graphs"])
        if row["variant"].startswith("legacy"):
            bare[key] = row
        elif row["variant"].startswith("served") and key in bare:
            for speed in ("growing_per_second", "prefill_per_second"):
                if row[speed] and bare[key][speed]:
                    row[speed + "_of_legacy"] = row[speed] / bare[key][speed]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--server-no-vmm")
    parser.add_argument("--model", required=True)
    parser.add_argument("--guard", required=True)
    parser.add_argument("--flags", default="", help="more flags for the engine; the last one of a kind counts")
    parser.add_argument("--depth", type=int, default=61440)
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--cycle-tokens", type=int, default=12288)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only-cycles", action="store_true", help="only the prompts that grow and start again")
    options = parser.parse_args()
    start = time.monotonic()
    result = {"depth": options.depth, "rows": []}
    for variant, configuration, binary, words, graphs in () if options.only_cycles else rows(options):
        repetitions = 0 if options.quick else 2
        row = attempt(depth, options, binary, configuration, words, graphs, repetitions)
        result["rows"].append({"variant": variant, "configuration": configuration, **row, "at_seconds": round(time.monotonic() - start)})
    result["cycles"] = attempt(cycles, options, options.server, SERVED, options.cycles, options.cycle_tokens)
    judge(result)
    result["seconds"] = round(time.monotonic() - start)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
