"""What PyTorch says when it runs out while NVML is sick, bare and guarded.

usage: torch_oom.py --guard LIBRARY --nvml FOLDER
FOLDER holds a libnvidia-ml.so.1 built from nvml_sick.c, which answers as NVML_SICK says. Prints one JSON object.
"""

import argparse
import json
import os
import subprocess
import sys

from gpu import guarded

PROGRAM = """
import torch
torch.zeros(1, device='cuda')
try:
    held = [torch.empty(1 << 30, dtype=torch.uint8, device='cuda') for _ in range(400)]
    print('no error')
except Exception as error:
    print(type(error).__module__ + '.' + type(error).__qualname__)
    print(str(error)[:900])
held = torch.ones(1 << 20, device='cuda'); print('usable', float(held.sum()))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--guard", required=True)
    parser.add_argument("--nvml", required=True)
    options = parser.parse_args()
    rows = []
    for sick in ("healthy", "NOT_SUPPORTED", "NO_PERMISSION", "INIT"):
        # without a budget the card itself runs out, with one guard says so first
        for words in (None, "", "budget=4294967296"):
            environment = guarded(words, options.guard)
            if sick != "healthy":
                environment["NVML_SICK"] = sick
                environment["LD_LIBRARY_PATH"] = os.path.abspath(options.nvml) + ":" + environment.get("LD_LIBRARY_PATH", "")
            done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
            lines = done.stdout.splitlines()
            rows.append({"nvml": sick, "guard": words, "status": done.returncode, "error": lines[0] if lines else None,
                         "message": "\n".join(lines[1:])[:700], "stderr": done.stderr[-400:]})
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
