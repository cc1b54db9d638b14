#!/usr/bin/env python3
"""Speed of a model that `plimsoll serve` loads with the key `spill`, beside the same engine without a budget.

usage: serve_spill.py PLIMSOLL LLAMA_SERVER SPECIMEN OUT [BUDGET]

The server serves an 8B with a cache of 8 GiB from BUDGET of the card (default 8GiB). Printed are the depth at full speed that the
server says and guard prints, what the driver counts beside the claim, and decode and prefill at depths around that one. It takes
about four minutes.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request

from gpu import Engine, taken

FLAGS = "-c 65536 -np 1 -ngl 99 -fit off -fa on --cache-ram 0 --no-warmup".split()
PREDICT = 48


def ask(address, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}{path}", data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=240) as answer:
        return answer.read().decode()


def speed(address, depth):
    """Decode and prefill in tokens a second, and the answer."""
    random.seed(depth)
    prompt = [random.randrange(300, 20000) for _ in range(depth)]
    body = {"model": "m", "prompt": prompt, "n_predict": PREDICT, "cache_prompt": False, "temperature": 0}
    # What random weights say need not be UTF-8 (see Engine.complete).
    body |= {"return_tokens": True, "logit_bias": [[id, False] for id in range(259)]}
    answer = json.loads(ask(address, "/completion", body))
    times = answer["timings"]
    return round(times["predicted_per_second"], 1), round(times["prompt_per_second"]), answer["tokens"]


def serve(plimsoll, server, model, budget, folder):
    """The server's process, and its address."""
    name = subprocess.run(
        ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, check=True
    ).stdout.splitlines()[0]
    flags = " ".join(["-m", model, *FLAGS])
    with open(f"{folder}/plimsoll.toml", "w") as file:
        file.write(f"[models.m]\nprogram = {json.dumps([server])}\nflags = {json.dumps(flags)}\nspill = \"16GiB\"\n")
    paths = [os.environ.get("ENGINE_LIBRARIES"), os.path.dirname(os.path.abspath(server)), os.environ.get("LD_LIBRARY_PATH")]
    libraries = ":".join(path for path in paths if path)
    process = subprocess.Popen(
        [plimsoll, "serve", f"{folder}/plimsoll.toml", "--listen", "127.0.0.1:0", "--reserve", "0"]
        + ["--card", f"name={name},total={budget}"],
        stdout=subprocess.PIPE, stderr=open(f"{folder}/serve.log", "w"), text=True,
        env={**os.environ, "LD_LIBRARY_PATH": libraries},
    )
    return process, process.stdout.readline().strip()


def main():
    plimsoll, server, specimen, out, *more = sys.argv[1:]
    budget, folder = (more or ["8GiB"])[0], tempfile.mkdtemp()
    os.makedirs(out, exist_ok=True)
    model = f"{folder}/l8.gguf"
    subprocess.run([specimen, "l8", model], check=True, capture_output=True)
    before = taken()[0]
    process, address = serve(plimsoll, server, model, budget, folder)
    result = {"budget": budget, "rows": []}
    try:
        speed(address, 100)
        (shown,) = json.loads(ask(address, "/api/status"))["models"]
        knee = shown["spill"]["full_speed_tokens"]
        result |= {"spill": shown["spill"], "claim": shown["claim"], "driver_mib": taken()[0] - before}
        result["guard"] = [line for line in ask(address, "/logs").splitlines() if "plimsoll guard" in line]
        depths = [1000, 8000, knee - 600, knee + 600, 30000]
        served = {depth: speed(address, depth) for depth in depths}
        time.sleep(1)
        result["ms_per_1000"] = json.loads(ask(address, "/api/status"))["models"][0]["spill"]["ms_per_1000_tokens_beyond"]
    finally:
        process.terminate()
        process.wait(60)
    engine = Engine(server, ["-m", model, *FLAGS], dict(os.environ), f"{out}/bare.log")
    try:
        if not engine.ready():
            raise OSError("the engine did not start")
        for depth, (decode, prefill, tokens) in served.items():
            bare = speed(f"http://127.0.0.1:{engine.port}", depth)
            row = {"depth": depth, "decode": decode, "bare": bare[0], "prefill": prefill, "bare_prefill": bare[1]}
            result["rows"].append(row | {"same": tokens == bare[2]})
    finally:
        engine.stop()
        with open(f"{out}/serve_spill.json", "w") as file:
            json.dump(result, file, indent=1)
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
