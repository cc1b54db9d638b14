"""Runs issue3.py with doubles on a machine without a card, and checks what it writes: a lease is too dear for a slip of the pen.

usage: dry_run.py --target TARGET_FOLDER   (with `cargo build -p plimsoll -p fake-cuda -p fake-nvml` and
`cargo build --profile guard -p plimsoll-guard` done)
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CARD = {"uuid": "GPU-00000001-0000-0000-0000-000000000000", "name": "NVIDIA H200", "total": 143771 << 20, "free": 140000 << 20,
        "cc": [9, 0], "pci": "00000000:01:00.0"}


def surroundings(target, folder):
    """The environment of a machine with one card, none of which is there."""
    os.symlink(f"{target}/debug/libplimsoll_fake_cuda.so", f"{folder}/libcuda.so.1")
    return {
        **os.environ,
        "PATH": f"{HERE}/doubles:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": folder,
        "PLIMSOLL_FAKE_CUDA": f"total=141G context=0 uuids={CARD['uuid']}",
        "PLIMSOLL_NVML": f"{target}/debug/libnvidia_ml.so",
        "PLIMSOLL_FAKE_NVML_CARDS": json.dumps([CARD]),
    }


def check(out):
    spill, bench, prefill = (json.load(open(f"{out}/{part}.json")) for part in ("spill", "bench", "prefill"))
    rows = {(row["below_percent"], row["variant"]): row for row in spill["rows"]}
    assert len(rows) == 15, sorted(rows)
    for (below, variant), row in rows.items():
        assert row["loaded"] == (variant != "refused"), (below, row)
        if variant == "refused":
            continue
        assert row["same_answer"] and row["page"]["spilled"] > 0 and "of_limit" in row, (below, row)
        overflows = [line for line in row["said"] if " overflow: " in line]
        if variant in ("spill, need known", "spill, planned by run"):
            assert len(overflows) == 1 and " 1006 MiB overflow: " in overflows[0], (below, overflows)
        if variant == "spill, last comer":
            assert overflows and " 1006 MiB overflow: " not in overflows[0], (below, overflows)
    assert spill["bare"]["loaded"] and spill["unified"]["loaded"]
    for test in ("pp512", "tg128"):
        each = bench[test]["each"]
        assert len(each["bare"]) == len(each["guarded"]) >= 3, bench
        low, high = bench[test]["all"]["interval"]
        assert low <= bench[test]["all"]["ratio"] <= high, bench
    for way in prefill.values():
        assert len(way["runs"]["bare"]) == len(way["runs"]["served"]) >= 1 and way["ratio"] == 1, prefill


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    options = parser.parse_args()
    target = os.path.abspath(options.target)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(f"{folder}/engine.tar.xz", "w:xz") as tar:
            for program in ("llama-server", "llama-bench"):
                tar.add(f"{HERE}/doubles/{program}", f"bin/{program}")
        made = subprocess.run([f"{target}/debug/plimsoll", "synth", "m8", f"{folder}/m8.gguf"], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        done = subprocess.run(
            [sys.executable, f"{HERE}/issue3.py", "--engine", f"{folder}/engine.tar.xz", "--guard", f"{target}/guard/libplimsoll_guard.so",
             "--plimsoll", f"{target}/debug/plimsoll", "--out", f"{folder}/out", "--work", folder, "--seconds", "40",
             "--smaller", json.dumps({"prompt": 100, "predict": 4, "depth": 100, "pairs": 2})],
            env=surroundings(target, folder), timeout=300,
        )
        for part in ("spill", "bench", "prefill"):
            with open(f"{folder}/out/{part}.json") as file:
                assert "failed" not in (result := json.load(file)), result
        assert done.returncode == 0, done.returncode
        check(f"{folder}/out")
    print("the dry run is as it should be")


if __name__ == "__main__":
    main()
