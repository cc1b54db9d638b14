"""A neighbour takes the card's memory at a moment around a load, and an engine hangs in its own abort: what `plimsoll serve` says and does.

usage: neighbour.py --plimsoll PROGRAM --server LLAMA_SERVER --model MODEL [--rounds 20] [--hang] [--out FILE]
Each round asks for the model; the neighbour, a process of its own, takes all but a few hundred MiB up to 0.7 s before and 1.3 s after the question.
Prints one line a round, then the sums. `--hang` has the engine run out of memory in a long prompt, with a debugger that never returns.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

MIB = 1 << 20
TAKER = r"""
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, block, free, total = ctypes.c_void_p(), ctypes.c_uint64(0), ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
print("ready", flush=True)
for line in sys.stdin:
    word = line.split()
    if word[0] == "take":
        cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        size = free.value - int(word[1])
        code = cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(size)) if size > 0 else -1
        print(code, size, flush=True)
    else:
        print(cuda.cuMemFree_v2(block) if block.value else 0, 0, flush=True)
        block.value = 0
"""


class Taker:
    def __init__(self):
        self.process = subprocess.Popen([sys.executable, "-c", TAKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def say(self, words):
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        code, size = self.process.stdout.readline().split()
        return int(code), int(size)


class Served:
    def __init__(self, options, flags, environment=None):
        self.folder = tempfile.TemporaryDirectory()
        config = f"{self.folder.name}/serve.toml"
        with open(config, "w") as file:
            file.write(f'[models.a]\nmodel = "{options.model}"\nflags = "{flags}"\nstop-timeout = "2s"\n')
        self.said = open(f"{self.folder.name}/said", "w")
        self.process = subprocess.Popen([options.plimsoll, "serve", config, "--engine", options.server, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE,
                                        stderr=self.said, text=True, env={**os.environ, **(environment or {})})
        self.address = self.process.stdout.readline().strip()

    def ask(self, path, body=None, timeout=120):
        request = urllib.request.Request(self.address + path, data=None if body is None else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def status(self):
        return json.loads(self.ask("/api/status")[1])

    def end(self):
        self.process.terminate()
        self.process.wait(60)
        self.said.close()
        with open(f"{self.folder.name}/said") as said:
            return said.read()


def uptime():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def started(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rsplit(") ", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")


def engines(server, above):
    """Engines of the daemon, which are its children or their children."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as line:
                words = line.read().split("\0")
        except OSError:
            continue
        if words[0] == server and "exec-child" not in words and int(pid) != above:
            found.append(int(pid))
    return found


def reasons(tree, code):
    found = [tree] if tree.get("code") == code else []
    return found + [below for cause in tree.get("because", []) for below in reasons(cause, code)]


def one_round(served, taker, server, offset):
    """The neighbour takes at `offset` seconds from the question. Watches when an engine begins."""
    began, answered = [], threading.Event()

    def watch():
        while not answered.is_set():
            for pid in engines(server, served.process.pid):
                try:
                    began.append(started(pid))
                    return
                except OSError:
                    pass
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    taken = {}

    def take():
        time.sleep(max(0, offset))
        taken["code"], taken["bytes"] = taker.say(f"take {600 * MIB}")
        taken["at"] = uptime()

    thread = threading.Thread(target=take)
    thread.start()
    time.sleep(max(0, -offset))
    status, body = served.ask("/upstream/a/health")
    answered.set()
    watcher.join()
    thread.join()
    row = {"offset_ms": round(offset * 1000), "status": status, "took": taken["code"] == 0, "mib": taken["bytes"] // MIB}
    if began:
        row["begun_after_taken_ms"] = round((began[0] - taken["at"]) * 1000)
    if status != 200:
        error = json.loads(body)["error"]
        row["code"] = error["code"]
        holders = reasons(error["reason"], "holder")
        row["names"] = [(each["facts"]["process"] == taker.process.pid, each["facts"].get("used", 0) // MIB) for each in holders]
        row["foreign"] = [each["facts"].get("foreign", 0) // MIB for each in reasons(error["reason"], "foreign") + reasons(error["reason"], "foreign_memory")]
    return row


def rounds(options):
    taker, dice, rows = Taker(), random.Random(7), []
    served = Served(options, "-c 4096 -np 1 -ngl 99 -fit off --no-warmup -dev CUDA0")
    for _ in range(options.rounds):
        row = one_round(served, taker, options.server, dice.uniform(-0.7, 1.3))
        taker.say("free")
        served.ask("/api/models/unload", {})
        while engines(options.server, served.process.pid):
            time.sleep(0.02)
        # A model that failed is held back for a moment.
        while served.status()["models"][0]["held_back"]:
            time.sleep(0.05)
        time.sleep(0.1)
        model = served.status()["models"][0]
        row["learned"] = model["learned"]
        rows.append(row)
        print(json.dumps(row), flush=True)
    said = served.end()
    taker.process.kill()
    late = [row for row in rows if row["took"] and row.get("begun_after_taken_ms", 0) > 50 + 10]
    unnamed = [row for row in rows if row["status"] == 503 and row["code"] == "no_room" and not any(ours for ours, _ in row["names"])]
    print(json.dumps({"rounds": len(rows), "loaded": sum(row["status"] == 200 for row in rows), "refused": sum(row["status"] != 200 for row in rows),
                      "begun later than 50 ms after": len(late), "refusals without the neighbour": len(unnamed), "learned": max(row["learned"] for row in rows)}), flush=True)
    return {"rows": rows, "said": said[-4000:]}


def hang(options):
    """Runs out in a long prompt under a debugger that never returns, so that the process hangs in its abort."""
    tools = tempfile.mkdtemp()
    for name in ("gdb", "lldb"):
        with open(f"{tools}/{name}", "w") as file:
            file.write("#!/bin/sh\nexec sleep 600\n")
        os.chmod(f"{tools}/{name}", 0o755)
    # Without flash attention the pool grows with the prompt, so that the driver refuses memory in the middle of it.
    served = Served(options, "-c 32768 -np 1 -ngl 99 -fit off -ub 2048 -b 2048 --no-warmup -dev CUDA0 -fa off", {"PATH": f"{tools}:{os.environ['PATH']}"})
    taker, answer = Taker(), {}
    served.ask("/completion", {"model": "a", "prompt": [1, 2, 3], "n_predict": 1}, 300)
    first = set(engines(options.server, served.process.pid))
    taker.say(f"take {8 * MIB}")

    def ask():
        start = time.monotonic()
        status, body = served.ask("/completion", {"model": "a", "prompt": [5 + number % 900 for number in range(30000)], "n_predict": 1}, 120)
        answer.update(status=status, after_s=round(time.monotonic() - start, 1), body=body.decode(errors="replace")[:600])

    asking = threading.Thread(target=ask)
    asking.start()
    words = None
    while first & set(engines(options.server, served.process.pid)) and asking.is_alive():
        if words is None and b"CUDA error" in served.ask("/logs")[1]:
            words = time.monotonic()
        time.sleep(0.05)
    gone = None if words is None else round(time.monotonic() - words, 2)
    taker.say("free")
    asking.join()
    taker.process.kill()
    result = {"engine_gone_after_words_s": gone, "answer": answer, "learned": served.status()["models"][0]["learned"]}
    print(json.dumps(result), flush=True)
    return {**result, "said": served.end()[-4000:]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--plimsoll", "--server", "--model"):
        parser.add_argument(name, required=True)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--hang", action="store_true")
    parser.add_argument("--out")
    options = parser.parse_args()
    result = hang(options) if options.hang else rounds(options)
    if options.out:
        with open(options.out, "w") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
