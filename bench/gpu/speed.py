#!/usr/bin/env python3
"""Speed of llama-server with synthetic models: those that calibrate rates, or those that predictions are held to.

usage: speed.py calibration|sealed BIN OUT SECONDS

BIN is the folder of a CUDA build of llama-server and llama-bench. No measurement begins after SECONDS. Rows go to OUT/calibration.json and
OUT/host.json, or to OUT/sealed.json. `sealed` asks `specimen` (doubles/specimens), which must be on PATH, for a model of another family.
"""

import json
import os
import subprocess
import sys
import time

import speed_models
from gpu import Engine, Until, tokens

FOLDER = "/tmp/speed-models"
VOCABULARY = 30000
CARD = "-ngl 99 -fit off -c 36864 -np 1 -fa on --cache-ram 0".split()
HOST = "-fit off -c 8192 -np 1 -fa on --cache-ram 0".split()
TIMES = ("prompt_n", "prompt_ms", "predicted_n", "predicted_ms")
THREADS = 16

# File, model, cache type, flags, depths, tokens of an answer, threads of the host. Fewer experts show the cost of each. A prompt of 512 tokens comes
# before longer ones, because the engine loads its kernels for prompts then.
CALIBRATION = [
    *(
        case
        for model in speed_models.CALIBRATION
        for case in (
            ("calibration", model, "f16", CARD, (16, 16, 16, 512, 4096, 4096, 16384, 32768), 64, None),
            ("calibration", model, "q8_0", CARD, (16, 16, 4096, 32768), 64, None),
        )
    ),
    *(
        ("calibration", "cal-experts", "f16", [*CARD, "--override-kv", f"qwen3moe.expert_used_count=int:{used}"], (16, 16, 4096), 64, None)
        for used in (1, 4)
    ),
    *(
        ("host", model, "f16", [*flags, *HOST, "-t", str(THREADS)], (16, 16, 512, 4096), 32, THREADS)
        for model, flags in (
            ("cal-experts", ["-ngl", "99", "-ncmoe", "16"]),
            ("cal-narrow", ["-ngl", "0"]),
            ("cal-wide", ["-ngl", "5"]),
        )
    ),
]
SEALED = [
    ("sealed", model, kv, CARD, (16, 16, 512, 4096, 16384, 32768), 64, None)
    for model in (*speed_models.SEALED, "nemotron-h-9b")
    for kv in ("f16", "q8_0")
]


def shell(command):
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=False).stdout.strip()


def about(binary):
    """The machine, the engine and the command, as the head of a file of rows."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "gpu": shell("nvidia-smi --query-gpu=name --format=csv,noheader"),
        "driver": shell("nvidia-smi --query-gpu=driver_version --format=csv,noheader"),
        "engine": shell(f"LD_LIBRARY_PATH={binary} {binary}/llama-server --version 2>&1 | head -1"),
        "cpu": shell("lscpu | grep -E '^(CPU.s.:|Model name|L3|NUMA node.s)'"),
        "command": " ".join(sys.argv),
    }


def measure(binary, case):
    """The rows of one engine."""
    _, model, kv, flags, depths, predict, threads = case
    flags = [*flags, "-ctk", kv, "-ctv", kv]
    engine = Engine(f"{binary}/llama-server", ["-m", f"{FOLDER}/{model}.gguf", *flags], dict(os.environ), f"{FOLDER}/{model}.log")
    try:
        if not engine.ready(60):
            raise OSError("; ".join(engine.said("error", "failed")))
        # The first tokens capture graphs and load kernels.
        engine.complete(tokens(16, VOCABULARY), 32, cache_prompt=False)
        for at, depth in enumerate(depths):
            repetition = depths[:at].count(depth)
            prompt = tokens(depth, VOCABULARY, depth + repetition)
            times = engine.complete(prompt, predict, cache_prompt=False)["timings"]
            row = {"model": model, "flags": flags, "kv": kv, "depth": depth, "threads": threads, "repetition": repetition}
            yield {**row, **{key: round(times[key], 3) for key in TIMES}}
    except OSError as error:
        yield {"model": model, "flags": flags, "kv": kv, "error": str(error)[:300]}
    finally:
        engine.stop()


def without_sampler(binary, model):
    """The row of llama-bench, whose tokens pass no sampler and no server."""
    flags = ["-ngl", "99", "-fa", "1", "-p", "0", "-n", "64", "-r", "3"]
    done = shell(f"LD_LIBRARY_PATH={binary} timeout 60 {binary}/llama-bench -m {FOLDER}/{model}.gguf -o json " + " ".join(flags))
    for row in json.loads(done):
        yield {"model": model, **{key: row[key] for key in ("n_gen", "n_depth", "avg_ns", "stddev_ns")}}


def main():
    which, binary, out, seconds = sys.argv[1:]
    cases, models = (CALIBRATION, speed_models.CALIBRATION) if which == "calibration" else (SEALED, speed_models.SEALED)
    until, head, files = Until(float(seconds)), about(binary), {}
    for folder in (FOLDER, out):
        os.makedirs(folder, exist_ok=True)
    for name, model in models.items():
        speed_models.write(f"{FOLDER}/{name}.gguf", name, model)
        # Pages of the hole are read before an engine waits for them.
        shell(f"cat {FOLDER}/{name}.gguf >/dev/null")
    if which == "sealed":
        shell(f"specimen nemotron-h-9b {FOLDER}/nemotron-h-9b.gguf && cat {FOLDER}/nemotron-h-9b.gguf >/dev/null")
    for case in cases:
        if until.passed():
            break
        rows = files.setdefault(case[0], [])
        if which == "calibration" and not any(row["model"] == case[1] for row in rows):
            rows.extend(without_sampler(binary, case[1]))
        rows.extend(measure(binary, case))
        with open(f"{out}/{case[0]}.json", "w", encoding="utf-8") as file:
            file.write(json.dumps(head)[:-1] + ', "rows": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]}\n")


if __name__ == "__main__":
    main()
