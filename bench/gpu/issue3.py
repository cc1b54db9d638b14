"""All that is still to be measured of guard on a card, in one command of less than nine minutes.

usage: issue3.py --engine b8799.small.tar.xz --guard LIBRARY --plimsoll PROGRAM --out FOLDER [--seconds 520] [--parts spill,bench,prefill]
                 [--torch-tests test_cuda.py]
  on a lent card: `mkdir -p .lease && cp ... .lease/`, carry `.lease`, and run
  `python3 bench/gpu/issue3.py --engine .lease/b8799.small.tar.xz --guard .lease/libplimsoll_guard.so --plimsoll .lease/plimsoll --out $OUT`
The engine is the archive of a build (`bin/llama-server`, `bin/llama-bench`, its libraries), the model is made here. One card is used, the
first. Each part has its share of the time and writes FOLDER/PART.json when it ends, so that a command that is cut off has lost
one part at most; FOLDER/steps.txt says when what began. No setting of the card is touched.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time

import prefill
import short
import spill
import torch_tests
from gpu import Until

# Parts of the time that is left after unpacking, in this order: what was missed by most comes first.
SHARES = {"spill": 0.34, "bench": 0.40, "prefill": 0.26}
# Of PyTorch's own tests, where its file is given: those that provoke OOM, whose outcome was lost the last time, and two patterns more.
TORCH_SHARE = 0.3
PATTERNS = ["oom", "memory_snapshot", "caching_pinned"]


class Steps:
    def __init__(self, folder):
        self.start = time.monotonic()
        self.file = open(f"{folder}/steps.txt", "a")

    def say(self, what):
        line = f"{time.monotonic() - self.start:6.1f} s  {what}"
        print(line, file=self.file, flush=True)
        print(line, file=sys.stderr, flush=True)

    def left(self, seconds):
        return seconds - (time.monotonic() - self.start)


def unpack(archive, folder):
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="fully_trusted")
    return f"{folder}/bin"


def synthesised(options):
    model = f"{options.work}/m8.gguf"
    if not os.path.exists(model):
        subprocess.run([options.plimsoll, "synth", "m8", "--dense", model], check=True, stdout=subprocess.DEVNULL)
    return model


def parts(options, binaries, model):
    same = {"model": model, "guard": options.guard}
    server, bench = f"{binaries}/llama-server", f"{binaries}/llama-bench"
    flags = argparse.ArgumentParser()
    spill.arguments(flags)
    asked = {**vars(flags.parse_args([])), **same, "server": server, "plimsoll": options.plimsoll}
    asked.update(json.loads(options.smaller))
    yield "spill", lambda until: spill.measure(argparse.Namespace(**asked), until)
    words = "budget=68719476736 pool=ours reuse spill=1073741824"
    benched = argparse.Namespace(**same, bench=bench, pairs=200, words=words)
    yield "bench", lambda until: short.measure(benched, until)
    deep = {**same, "server": server, "server_no_vmm": None, "pairs": 20, "depth": 61440, **json.loads(options.smaller)}
    yield "prefill", lambda until: prefill.measure(argparse.Namespace(**deep), until)
    tests = {"tests": options.torch_tests, "guard": options.guard, "words": torch_tests.WORDS, "pattern": PATTERNS, "seconds": 45}
    yield "torch", lambda until: torch_tests.measure(argparse.Namespace(**tests), until)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("engine", "guard", "plimsoll", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--work", default="/tmp/issue3")
    parser.add_argument("--seconds", type=float, default=520)
    parser.add_argument("--parts", default=",".join(SHARES))
    parser.add_argument("--torch-tests", help="PyTorch's test_cuda.py: one part more")
    parser.add_argument("--smaller", default="{}", help="for a dry run: JSON of settings that make the parts shorter")
    options = parser.parse_args()
    os.environ.update(CUDA_VISIBLE_DEVICES="0", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    for folder in (options.out, options.work):
        os.makedirs(folder, exist_ok=True)
    steps = Steps(options.out)
    steps.say("unpacks the engine")
    binaries = unpack(options.engine, options.work)
    steps.say("makes the model")
    model = synthesised(options)
    shares = {part: SHARES[part] for part in options.parts.split(",")}
    if options.torch_tests:
        shares["torch"] = TORCH_SHARE
    whole, left = sum(shares.values()), steps.left(options.seconds)
    failed = 0
    for part, measure in parts(options, binaries, model):
        if part not in shares:
            continue
        share = left * shares[part] / whole
        steps.say(f"{part}, {share:.0f} s")
        try:
            result = measure(Until(share))
        except Exception as error:  # what fails must not take the other parts with it
            result, failed = {"failed": repr(error)}, 1
        with open(f"{options.out}/{part}.json", "w") as file:
            json.dump(result, file, indent=1)
        steps.say(f"{part} is written")
    steps.say("ends")
    return failed


if __name__ == "__main__":
    sys.exit(main())
