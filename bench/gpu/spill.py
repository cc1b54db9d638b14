"""What it costs when a model does not fit: a budget below the need, overflow in host memory, and the whole-buffer fallbacks beside it.

usage: spill.py --server LLAMA_SERVER --model MODEL --guard LIBRARY --bandwidth GB/S [--flags "..."] [--plimsoll PROGRAM]
The limit of a row is what the bus allows: a token takes the bare time and the time to read the overflow once. Prints one JSON object.

Need of m8 with -c 8192 on an H200: 1914 MiB, of which context 518, weights 1006, KV cache 256, compute buffer 116, pool 18. So 5, 12
and 25 % below it overflow by 96, 230 and 479 MiB and what is left for small requests (a 64th of the budget), all of it weights
where guard knows the need. Three ways to know it: as measured (`need`), planned by `plimsoll run` (`--plimsoll`), not at all.
"""

import argparse
import json
import os
import shlex
import tempfile

from gpu import Engine, Until, guarded, median, page, tokens, used

VOCABULARY = 32000


def serve(engine, options, row):
    """Serves one prompt twice: speeds and tokens, into the row."""
    row["loaded"] = engine.ready()
    if not row["loaded"]:
        return
    answers = [engine.complete(tokens(options.prompt, VOCABULARY), options.predict, cache_prompt=False) for _ in range(2)]
    row["tokens_per_second"] = median([answer["timings"]["predicted_per_second"] for answer in answers])
    row["prefill_per_second"] = median([answer["timings"]["prompt_per_second"] for answer in answers])
    row["answer"] = answers[0]["tokens"]


def run(options, words, extra=None):
    """An engine under these words: speeds, memory, tokens; or how it died."""
    with tempfile.TemporaryDirectory() as pages:
        environment = {**guarded(words, options.guard, pages), **(extra or {})}
        engine = Engine(options.server, ["-m", options.model, *shlex.split(options.flags)], environment, f"{pages}/log")
        row = {"words": words, **({"environment": extra} if extra else {})}
        try:
            serve(engine, options, row)
            row["nvidia_smi_mib"] = used(engine.process.pid)
        except OSError as error:
            row["died"] = str(error)
        row["page"] = page(pages, engine.process.pid)
        row["status"] = engine.stop()
        row["said"] = engine.said("plimsoll guard", "out of memory", "failed to allocate")
        return row


def planned(options, budget, spill):
    """The same under `plimsoll run`, which plans the engine by itself."""
    with tempfile.TemporaryDirectory() as folder:
        asked = ["--budget", f"{budget}B", "--spill", f"{spill}B", "--pool", "ours", "--report", f"{folder}/report"]
        environment = {**os.environ, "PLIMSOLL_GUARD_LIBRARY": os.path.abspath(options.guard)}
        engine = Engine(options.server, ["-m", options.model, *shlex.split(options.flags)], environment, f"{folder}/log",
                        [options.plimsoll, "run", *asked, "--"])
        row = {"words": " ".join(asked[:-2])}
        try:
            serve(engine, options, row)
        except OSError as error:
            row["died"] = str(error)
        row["status"] = engine.stop()
        row["said"] = engine.said("plimsoll guard", "plimsoll run", "out of memory")
        try:
            with open(f"{folder}/report") as report:
                row["page"] = json.load(report)["cards"][0]
        except (OSError, IndexError) as error:
            row["died"] = f"no report: {error}"
        return row


def judge(row, options, bare, answer):
    """How near the row comes to what the bus allows."""
    row["same_answer"] = row.pop("answer", None) == answer
    if "tokens_per_second" in row and row.get("page"):
        bus = row["page"]["spilled"] / (options.bandwidth * 1e9)
        row["limit_tokens_per_second"] = 1 / (1 / bare + bus)
        row["of_limit"] = row["tokens_per_second"] / row["limit_tokens_per_second"]
        row["of_bus_alone"] = row["tokens_per_second"] * bus
    return row


def variants(options, need, asked, below):
    """What is run at a budget so far below the need, the most telling first."""
    budget, spill = need * (100 - below) // 100, need
    held = f"budget={budget} pool=ours"
    yield "spill, need known", lambda: run(options, f"{held} spill={spill} need={asked}")
    if options.plimsoll:
        yield "spill, planned by run", lambda: planned(options, budget, spill)
    yield "spill, last comer", lambda: run(options, f"{held} spill={spill}")
    yield "managed, whole buffer", lambda: run(options, f"budget={budget} on-oom=managed")
    yield "refused", lambda: run(options, held)


def measure(options, until):
    counted = run(options, f"budget={64 << 30} pool=ours")  # with a budget the context is part of what is counted
    need, bare, answer = counted["page"]["peak"], counted["tokens_per_second"], counted.pop("answer")
    asked = need - counted["page"]["context"]
    result = {"need": need, "asked": asked, "counted": counted, "rows": []}
    for below in (12, 25, 5):
        for name, act in variants(options, need, asked, below):
            if not until.passed():
                row = judge(act(), options, bare, answer)
                result["rows"].append({"below_percent": below, "variant": name, **row})
    for name, extra in (("bare", None), ("unified", {"GGML_CUDA_ENABLE_UNIFIED_MEMORY": "1"})):
        if not until.passed():
            result[name] = run(options, None if extra is None else "", extra)
            result[name].pop("answer", None)
    return result


def arguments(parser):
    parser.add_argument("--bandwidth", type=float, default=55.3, help="host to device, GB/s, as bench/gpu/mixed.cu measures it")
    parser.add_argument("--flags", default="-ngl 99 -c 8192 -fa on -fit off -np 1 --no-warmup")
    parser.add_argument("--plimsoll", help="plan by `plimsoll run`, too")
    parser.add_argument("--prompt", type=int, default=8000, help="nearly all of -c, so that a token reads nearly all of the KV cache")
    parser.add_argument("--predict", type=int, default=64)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--guard", required=True)
    parser.add_argument("--seconds", type=float, default=540)
    arguments(parser)
    options = parser.parse_args()
    print(json.dumps(measure(options, Until(options.seconds)), indent=1))


if __name__ == "__main__":
    main()
