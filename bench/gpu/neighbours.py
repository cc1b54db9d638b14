"""Two programs on one card: llama-server and PyTorch, budgets that sum to an allotment, whoever starts first.

usage: neighbours.py --server LLAMA_SERVER --model MODEL --guard LIBRARY
500 requests to one and 500 allocation rounds in the other; then one of them overruns. Prints one JSON object.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading

from gpu import Engine, guarded, page, tokens

TORCH = """
import json, random, sys, torch
limit, overrun = int(sys.argv[1]), sys.argv[2] == 'overrun'
random.seed(7)
print('ready', flush=True)
refused, rounds, held = 0, 0, []
for i in range(500):
    try:
        if len(held) > 6: held.pop(random.randrange(len(held)))
        size = random.randrange(1 << 20, limit // (2 if overrun else 12))
        block = torch.empty(size, dtype=torch.uint8, device='cuda'); block.fill_(i % 251)
        held.append(block); rounds += 1
    except torch.cuda.OutOfMemoryError as error:
        refused += 1; said = str(error)[:400]; held.clear(); torch.cuda.empty_cache()
for block in held: assert int(block[0]) == int(block[-1])
free, total = torch.cuda.mem_get_info()
print(json.dumps(dict(rounds=rounds, refused=refused, free=free, total=total, said=said if refused else None)))
"""


def both(options, first, torch_overruns, engine_overruns=False):
    row = {"first": first, "torch_overruns": torch_overruns, "engine_overruns": engine_overruns}
    with tempfile.TemporaryDirectory() as pages:
        engine_budget = options.engine_budget // (3 if engine_overruns else 1)
        parts = {}

        def start_engine():
            parts["engine"] = Engine(options.server, ["-m", options.model, "-ngl", "99", "-c", "8192", "-fa", "on", "-fit", "off", "-np", "1"],
                                     guarded(f"budget={engine_budget} pool=ours", options.guard, pages), f"{pages}/engine.log")
            row["engine_loaded"] = parts["engine"].ready()

        def start_torch():
            word = "overrun" if torch_overruns else "keep"
            parts["torch"] = subprocess.Popen([sys.executable, "-c", TORCH, str(options.torch_budget), word], text=True,
                                              env=guarded(f"budget={options.torch_budget}", options.guard, pages),
                                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            parts["torch"].stdout.readline()

        for start in [start_engine, start_torch] if first == "engine" else [start_torch, start_engine]:
            start()
        answered, failed = [], []

        def ask():
            for number in range(options.requests):
                try:
                    parts["engine"].complete(tokens(64 + number % 200, 32000, number + 1), 4, cache_prompt=False)
                    answered.append(number)
                except OSError as error:
                    failed.append(str(error))
                    return

        asker = threading.Thread(target=ask)
        if row["engine_loaded"]:
            asker.start()
        out, said = parts["torch"].communicate(timeout=300)
        if row["engine_loaded"]:
            asker.join(300)
        row["torch"] = json.loads(out.splitlines()[-1]) if parts["torch"].returncode == 0 else {"status": parts["torch"].returncode, "said": said[-600:]}
        row["engine"] = {"answered": len(answered), "failed": failed[:1], "page": page(pages, parts["engine"].process.pid)}
        row["engine"]["status"] = parts["engine"].stop()
        row["engine"]["said"] = parts["engine"].said("plimsoll guard", "out of memory", "failed to allocate")
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--guard", required=True)
    parser.add_argument("--engine-budget", type=int, default=4 << 30)
    parser.add_argument("--torch-budget", type=int, default=4 << 30)
    parser.add_argument("--requests", type=int, default=500)
    options = parser.parse_args()
    rows = [both(options, "engine", False), both(options, "torch", False), both(options, "engine", True), both(options, "torch", False, True)]
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
