"""What it costs when a model does not fit: a budget below the need, overflow in host memory, and the whole-buffer fallbacks beside it.

usage: spill.py --server LLAMA_SERVER --model MODEL --guard LIBRARY --bandwidth GB/S [--flags "..."] [--keep BYTES]
The limit of a row is what the bus allows: a token takes the bare time and the time to read the overflow once. Prints one JSON object.
"""

import argparse
import json
import shlex
import tempfile

from gpu import Engine, guarded, median, page, tokens, used

VOCABULARY = 32000


def run(options, words, extra=None):
    """Serves one prompt twice under these words: speeds, memory, tokens; or how it died."""
    with tempfile.TemporaryDirectory() as pages:
        environment = {**guarded(words, options.guard, pages), **(extra or {})}
        engine = Engine(options.server, ["-m", options.model, *shlex.split(options.flags)], environment, f"{pages}/log")
        row = {"words": words, **({"environment": extra} if extra else {})}
        try:
            row["loaded"] = engine.ready()
            if row["loaded"]:
                answers = [engine.complete(tokens(options.prompt, VOCABULARY), options.predict, cache_prompt=False) for _ in range(2)]
                row["tokens_per_second"] = median([answer["timings"]["predicted_per_second"] for answer in answers])
                row["prefill_per_second"] = median([answer["timings"]["prompt_per_second"] for answer in answers])
                row["answer"] = answers[0]["tokens"]
            row["nvidia_smi_mib"] = used(engine.process.pid)
            row["page"] = page(pages, engine.process.pid)
        except OSError as error:
            row["died"] = str(error)
            row["page"] = page(pages, engine.process.pid)
        row["status"] = engine.stop()
        row["said"] = engine.said("plimsoll guard", "out of memory", "failed to allocate")
        return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--guard", required=True)
    parser.add_argument("--bandwidth", type=float, required=True, help="host to device, GB/s, as bench/gpu/spill.cu measures it")
    parser.add_argument("--flags", default="-ngl 99 -c 8192 -fa on -fit off -np 1 --no-warmup")
    parser.add_argument("--keep", type=int, default=160 << 20)
    parser.add_argument("--prompt", type=int, default=8000, help="nearly all of -c, so that a token reads nearly all of the KV cache")
    parser.add_argument("--predict", type=int, default=64)
    options = parser.parse_args()
    free = run(options, f"budget={64 << 30} pool=ours")  # with a budget the context is part of what is counted
    need, bare = free["page"]["peak"], free["tokens_per_second"]
    result = {"need": need, "bare": run(options, None), "counted": free, "rows": []}
    for below in (5, 12, 25):
        budget = need * (100 - below) // 100
        spill = need
        variants = {
            "refused": (f"budget={budget} pool=ours", None),
            "spill, scratch kept": (f"budget={budget} pool=ours spill={spill} keep={options.keep}", None),
            "spill, last comer": (f"budget={budget} pool=ours spill={spill}", None),
            "managed, whole buffer": (f"budget={budget} on-oom=managed", None),
        }
        for name, (words, extra) in variants.items():
            row = {"below_percent": below, "variant": name, **run(options, words, extra)}
            row["same_answer"] = row.pop("answer", None) == free["answer"]
            if "tokens_per_second" in row:
                overflow = row["page"]["spilled"]
                bus = overflow / (options.bandwidth * 1e9)
                row["limit_tokens_per_second"] = 1 / (1 / bare + bus)
                row["of_limit"] = row["tokens_per_second"] / row["limit_tokens_per_second"]
                row["of_bus_alone"] = row["tokens_per_second"] * bus
            result["rows"].append(row)
    unified = run(options, "", {"GGML_CUDA_ENABLE_UNIFIED_MEMORY": "1"})
    unified.pop("answer", None)
    result["unified"] = unified
    free.pop("answer", None)
    result["bare"].pop("answer", None)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
