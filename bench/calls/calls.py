"""How many instructions guard adds to a call of the driver: counted by valgrind, so that no clock and no load of the machine matters.

usage: calls.py --guard LIBRARY [--cuda FOLDER] [--words OPTIONS] [--door dlsym|procedure] [--neighbours N] [--json]
Each figure is the difference of two runs of different length, bare and under guard, divided by the calls between them. The driver
is stub.c, which does nothing, so that a count is guard's own and exact; FOLDER may have another one as libcuda.so.1
(libplimsoll_fake_cuda.so of `cargo build --release -p fake-cuda`, whose hash tables make a count vary by some tens). With --neighbours
so many other processes share the budget.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SHORT, LONG = 200, 1200
OPERATIONS = [
    "launch", "graph launch", "copy to the card", "copy on the card", "copy, unified", "memset", "wait for a stream",
    "pointer attribute", "free memory", "alloc and free, 4 KiB", "alloc and free, 64 MiB", "alloc among 4096",
    "create and release, 2 MiB", "look a name up",
]
# What `serve` and `run` ask for usually, and everything that could cost something.
WORDS = {"counted": "", "held": "budget=68719476736 pool=ours reuse spill=1073741824 need=17179869184"}


@contextlib.contextmanager
def neighbours(count, program, door, environment):
    """Processes of a new tree that hold something and do nothing; the environment of one more."""
    with tempfile.TemporaryDirectory() as pages:
        environment = {**environment, "PLIMSOLL_GUARD_PAGES": pages}
        command = [program, "stand by", "0", door]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        standing = [subprocess.Popen(command, env=environment, **streams) for _ in range(count)]
        for process in standing:
            process.stdout.readline()
        yield environment
        for process in standing:
            process.communicate()


def instructions(program, operation, times, door, environment, beside):
    with neighbours(beside, program, door, environment) as environment:
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, operation, str(times), door],
            env=environment, capture_output=True, text=True,
        )
    counted = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not counted:
        raise SystemExit(f"{operation}: status {done.returncode}\n{done.stderr[-2000:]}")
    return int(counted.group(1))


def per_call(program, operation, door, environment, beside=0):
    short = instructions(program, operation, SHORT, door, environment, beside)
    return (instructions(program, operation, LONG, door, environment, beside) - short) / (LONG - SHORT)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--guard", required=True)
    parser.add_argument("--cuda")
    parser.add_argument("--words", help="only under these, instead of the usual two sets")
    parser.add_argument("--door", default="procedure", choices=["dlsym", "procedure"])
    parser.add_argument("--neighbours", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    words = WORDS if options.words is None else {options.words: options.words}
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/calls"
        cuda = os.path.abspath(options.cuda or folder)
        bare = {**os.environ, "LD_LIBRARY_PATH": cuda, "PLIMSOLL_FAKE_CUDA": "total=80G context=0"}
        if not options.cuda:
            stub = ["-shared", "-fPIC", "-Wl,-Bsymbolic,-soname,libcuda.so.1", "-o", f"{folder}/libcuda.so.1", f"{HERE}/stub.c"]
            subprocess.run(["cc", "-O2", *stub], check=True)
        subprocess.run(["cc", "-O2", f"{HERE}/calls.c", "-o", program, "-ldl"], check=True)
        for operation in OPERATIONS:
            row = rows[operation] = {"bare": per_call(program, operation, options.door, bare)}
            for name, line in words.items():
                guarded = {**bare, "LD_PRELOAD": os.path.abspath(options.guard), "PLIMSOLL_GUARD": line}
                row[name] = per_call(program, operation, options.door, guarded, options.neighbours) - row["bare"]
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    print("| instructions a call | bare | " + " | ".join(f"added, {name}" for name in words) + " |")
    print("|---|---|" + "---|" * len(words))
    for operation, row in rows.items():
        print(f"| {operation} | {row['bare']:.0f} | " + " | ".join(f"{row[name]:+.1f}" for name in words) + " |")


if __name__ == "__main__":
    main()
