"""Two cards: which of them a served model touches, for the presets that leave a stray context behind.

usage: cards.py --plimsoll PLIMSOLL --server LLAMA_SERVER --model MODEL [--fill]
Serves the model under each preset, asks it once and lists what nvidia-smi shows on each card; then again with the other card filled
to 199 MiB free by plain allocations. Prints one JSON object.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

PRESETS = {
    "default": "",
    "main-gpu": "split-mode = none\nmain-gpu = 0\n",
    "device CUDA1": "device = CUDA1\n",
    "device CUDA0": "device = CUDA0\n",
}

FILL = """
import sys, torch
card, leave = int(sys.argv[1]), int(sys.argv[2]) << 20
torch.cuda.set_device(card); torch.zeros(1, device='cuda')
held, size = [], 1 << 30
while size >= 1 << 20:
    free, _ = torch.cuda.mem_get_info(card)
    if free - leave < size: size >>= 1; continue
    held.append(torch.empty(size, dtype=torch.uint8, device='cuda'))
print(torch.cuda.mem_get_info(card)[0] >> 20, flush=True)
sys.stdin.read()
"""


def apps():
    rows = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,gpu_bus_id,used_memory", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, check=True).stdout.splitlines()
    return [[cell.strip() for cell in row.split(",")] for row in rows if row.strip()]


def serve(options, preset, filler_pid=None):
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        with open(f"{folder}/models.ini", "w") as config:
            config.write(f"[m8]\nmodel = {options.model}\nctx-size = 8192\nfit = off\n{preset}")
        path = os.path.dirname(os.path.abspath(options.server))
        environment = {**os.environ, "PATH": path + ":" + os.environ["PATH"], "LD_LIBRARY_PATH": path + ":" + os.environ.get("LD_LIBRARY_PATH", "")}
        daemon = subprocess.Popen([options.plimsoll, "serve", f"{folder}/models.ini", "--listen", f"127.0.0.1:{port}"],
                                  env=environment, stdout=subprocess.PIPE, stderr=open(f"{folder}/said", "w"))
        row, body = {}, json.dumps({"model": "m8", "prompt": "a", "n_predict": 4, "max_tokens": 4}).encode()
        for _ in range(100):
            try:
                request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", body, {"content-type": "application/json"})
                with urllib.request.urlopen(request, timeout=60) as answer:
                    row["status"] = answer.status
                break
            except urllib.error.HTTPError as error:
                row.update(status=error.code, said=error.read().decode()[:800])
                break
            except OSError:
                time.sleep(0.1)
        row["apps"] = [app for app in apps() if int(app[0]) != filler_pid]
        row["daemon_maps_libcuda"] = "libcuda" in open(f"/proc/{daemon.pid}/maps").read()
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(30)
        row["stderr"] = open(f"{folder}/said").read()[-600:]
        return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plimsoll", required=True)
    parser.add_argument("--server", required=True)
    parser.add_argument("--model", required=True)
    options = parser.parse_args()
    result = {"cards": subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines()}
    result["empty"] = {name: serve(options, preset) for name, preset in PRESETS.items()}
    result["filled"] = {}
    for name, other in (("main-gpu", 1), ("device CUDA1", 0), ("device CUDA0", 1)):
        filler = subprocess.Popen([sys.executable, "-c", FILL, str(other), "199"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        free = int(filler.stdout.readline())
        result["filled"][name] = {"filled_card": other, "free_mib_there": free, **serve(options, PRESETS[name], filler.pid)}
        filler.communicate("")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
