"""A budget over a tree of processes: PyTorch twice under one `plimsoll run`, bare and held, and what is left when one of them is killed.

usage: tree.py --plimsoll PROGRAM --guard LIBRARY [--budget MIB]
Both take 128 MiB blocks in turns until each was refused; then the first is killed and the second goes on. Prints one JSON object.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

from gpu import used

# Answers a line on its input with a line of what it holds: `take` asks for one block more.
CHILD = """
import json, sys, torch
held, said = [], None
torch.zeros(1, device='cuda')
print(json.dumps({'mib': 0}), flush=True)
for line in sys.stdin:
    try:
        held.append(torch.full((128 << 20,), 7, dtype=torch.uint8, device='cuda')); said = None
    except torch.cuda.OutOfMemoryError as error:
        said = str(error)[:600]
    free, total = torch.cuda.mem_get_info()
    print(json.dumps({'mib': 128 * len(held), 'refused': said, 'free': free >> 20, 'total': total >> 20}), flush=True)
assert all(int(block[0]) == int(block[-1]) == 7 for block in held)
"""

PARENT = """
import json, subprocess, sys
sys.path.insert(0, sys.argv[1])
from tree import CHILD, turns
print(json.dumps(turns([subprocess.Popen([sys.executable, '-c', CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)])))
"""


def ask(child):
    child.stdin.write("take\n")
    child.stdin.flush()
    return json.loads(child.stdout.readline())


def fill(children, most):
    """Blocks in turns, until nobody gets one; what each said last."""
    last = [{} for _ in children]
    for _ in range(most):
        if all(row.get("refused") for row in last):
            break
        last = [row if row.get("refused") else ask(child) for child, row in zip(children, last)]
    return last


def turns(children, most=40):
    for child in children:
        child.stdout.readline()
    both = fill(children, most)
    smi = [sum(used(child.pid).values()) for child in children]
    children[0].kill()
    children[0].wait()
    alone = fill(children[1:], most)[0]
    children[1].stdin.close()
    return {"both": both, "nvidia_smi_mib": smi, "second_alone": alone, "status": [child.wait() for child in children]}


def measure(options, budget):
    """Under `plimsoll run` with this budget for the tree, or bare."""
    environment = {**os.environ, "PLIMSOLL_GUARD_LIBRARY": os.path.abspath(options.guard)}
    with tempfile.TemporaryDirectory() as folder:
        before = [options.plimsoll, "run", "--budget", f"{budget}MiB", "--report", f"{folder}/report", "--"] if budget else []
        here = os.path.dirname(os.path.abspath(__file__))
        done = subprocess.run([*before, sys.executable, "-c", PARENT, here], env=environment, capture_output=True, text=True, timeout=240)
        row = {"budget_mib": budget, "status": done.returncode, "said": done.stderr.splitlines()[-12:]}
        if done.stdout.startswith("{"):
            row.update(json.loads(done.stdout))
        if budget and os.path.exists(f"{folder}/report"):
            with open(f"{folder}/report") as report:
                row["report"] = json.load(report)
        return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plimsoll", required=True)
    parser.add_argument("--guard", required=True)
    parser.add_argument("--budget", type=int, default=4096)
    options = parser.parse_args()
    print(json.dumps([measure(options, budget) for budget in (options.budget, None)], indent=1))


if __name__ == "__main__":
    main()
