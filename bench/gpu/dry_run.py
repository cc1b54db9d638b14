"""Rehearses run.py on a machine without a card, and checks what it writes, so that no mistake costs time on a card.

usage: dry_run.py --plimsoll PROGRAM                 the matrix, small, which needs neither guard nor a driver: some seconds
       dry_run.py --target FOLDER                    every part, with guard over a libcuda that only counts: a minute (`cargo build -p plimsoll
                                                     -p fake-cuda -p fake-nvml` and `cargo xtask guard` done in that target folder)
       dry_run.py --target FOLDER --engine BUILD=BIN the whole matrix with that engine (built with CUDA) over the phantom in the card's place
The engine is doubles/llama-server, nvidia-smi doubles/nvidia-smi. What depends on a real card (nvidia-smi's figures) is not asserted.
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
PHANTOM = """#!/bin/sh
# The engine over the phantom, with as many cards as are visible.
card=total=150754974720,free=150092120064,cc=9.0
case "$CUDA_VISIBLE_DEVICES" in *,*) card="$card;$card" ;; esac
names=$(mktemp -d)
for name in libcuda.so.1 libcudart.so.12 libcudart.so.13 libcublas.so.12 libcublas.so.13; do ln -s {phantom} "$names/$name"; done
export LD_PRELOAD={phantom} LD_LIBRARY_PATH="$names:$LD_LIBRARY_PATH" PLIMSOLL_PHANTOM_CARDS="${{PLIMSOLL_PHANTOM_CARDS:-$card}}"
exec {program} "$@"
"""


def archive(path, programs):
    """An engine's archive of these programs: texts, or files to copy."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(path, "w:xz") as tar:
        for name, text in programs.items():
            with open(f"{folder}/{name}", "w") as file:
                file.write(text)
            os.chmod(f"{folder}/{name}", 0o755)
            tar.add(f"{folder}/{name}", f"bin/{name}")


def doubles():
    programs = {}
    for name in ("llama-server", "llama-bench"):
        with open(f"{HERE}/doubles/{name}") as file:
            programs[name] = file.read()
    return programs


def surroundings(folder, target, cards=1):
    """The environment of a machine with cards, none of which is there."""
    environment = {**os.environ, "PATH": f"{HERE}/doubles:{os.environ['PATH']}", "FAKE_CARDS": str(cards), "PLIMSOLL_NVML": ""}
    if target:
        os.symlink(f"{target}/debug/libplimsoll_fake_cuda.so", f"{folder}/libcuda.so.1")
        environment.update(LD_LIBRARY_PATH=folder, CUDA_FAKE=f"total=141G context=0 uuids={CARD['uuid']}",
                           PLIMSOLL_NVML=f"{target}/debug/libnvidia_ml.so", PLIMSOLL_FAKE_NVML_CARDS=json.dumps([CARD]))
    return environment


def run(environment, *words, script="run.py"):
    """One command as on a GPU machine; its output, shown."""
    done = subprocess.run([sys.executable, f"{HERE}/{script}", *words], env=environment, stdout=subprocess.PIPE, text=True, timeout=560)
    print(done.stdout, end="", flush=True)
    assert done.returncode == 0, f"{script} {' '.join(words)} ended with {done.returncode}"
    return done.stdout


def results(out):
    with open(f"{out}/results.json") as file:
        return json.load(file)


def fast(plimsoll, folder):
    """The matrix on a double that listens nowhere, twice: the second command finds everything done."""
    environment = surroundings(folder, None)
    archive(f"{folder}/b10605.tar.xz", doubles())
    words = ["--work", f"{folder}/work", "--engine-archive", f"{folder}/b10605.tar.xz", "--plimsoll", plimsoll, "--libraries", folder,
             "--parts", "matrix-b10605", "--smaller", json.dumps({"rows": 4, "workers": 2})]
    said = run(environment, "--out", f"{folder}/out", *words)
    matrix = results(f"{folder}/out")["matrix-b10605"]
    assert matrix["complete"] and len(matrix["rows"]) == 4, matrix
    for row in matrix["rows"]:
        assert set(row["exact"]["off_mib"].values()) == {0.0}, row
        assert row["said_mib"]["CUDA0"]["weights"] == 1006.0, row
        assert row["default"]["off_mib"]["CUDA0 weights"] == round(4650.99 - 1006, 2), row
    assert "exact: 4 of 4 within its bound" in said and "default: 0 of 4 within its bound" in said, said
    again = run(environment, "--out", f"{folder}/again", "--have", f"{folder}/out", *words)
    assert "with b10605" not in again and again.endswith(said[said.index("matrix-b10605: 4"):]), again
    subprocess.run([sys.executable, f"{HERE}/run.py", "--golden", f"{folder}/out", "--engine", "a double", "--card", "name=H200,total=1GiB",
                    "--date", "2026-11-21"], check=True, stdout=subprocess.DEVNULL)
    with open(f"{folder}/out/h200-matrix-b10605.json") as file:
        golden = json.load(file)
    assert golden["build"] == 10605 and all(row["log"] and row["args"] for row in golden["rows"]), golden


def check_guarded(spill, bench, prefill):
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
    ways = [way for way in prefill.values() if isinstance(way, dict)]
    assert len(ways) == 2 and all(len(way["runs"]["bare"]) == len(way["runs"]["served"]) >= 1 and way["ratio"] == 1 for way in ways), prefill


def check_causes(causes):
    for row in causes["rows"]:
        assert "skipped" in row or row["doctor"]["cause"] == row["cause"], (row["cause"], row.get("failed"), row.get("doctor"))
    provoked = {row["cause"] for row in causes["rows"] if "doctor" in row}
    assert provoked >= {"model_too_large", "kv_cache_too_large", "compute_buffer_too_large", "pool_growth", "unified_memory_thrash"}, provoked


def check_growth(growth):
    rows = {row["name"]: row for row in growth["rows"]}
    assert len(rows) == 10 and growth["complete"], {name: row.get("failed") for name, row in rows.items()}
    for row in rows.values():
        if row["what"] == "depth":
            assert row["planned_mib"]["peak"] > row["planned_mib"]["loaded"] > 0 and "grown_mib" in row, row
        else:
            assert row["best"] % 256 == 0 and {"loaded", "filled"} <= row["at_best"].keys() & row["one_step_more"].keys(), row


def check_ik(ik):
    assert ik["complete"] and len(ik["rows"]) == 8, ik
    for row in ik["rows"]:
        planned = row["planned_mib"]
        assert planned["peak"] > planned["loaded"] > 0 and "grown_mib" in row and row["buffers_mib"]["CUDA0 KV"] > 0, row
    planned = {row["name"]: row["planned_mib"]["peak"] for row in ik["rows"]}
    assert planned["q8_0 ub 512 amb 0 mla 3"] > planned["q8_0 ub 512 amb 512 mla 3"] > planned["q8_0 ub 512 amb 512 mla 1"], planned


def check_admission(admission):
    held, free = admission["rows"]
    assert held["answered"] + len(held["refused"]) == held["requests"] and held["broken"] == held["out_of_memory"] == 0, held
    assert all(status in (429, 503) or 400 <= status < 500 for status in held["refused"]), held
    assert free["out_of_memory"] > 0, free


def check_load(parts):
    assert parts["soak"]["requests"] > 100 and parts["soak"]["failed"] == 0, parts["soak"]
    assert len(parts["sweep"]["depths"]) == 5 and parts["sweep"]["planned"]["peak"] > 0, parts["sweep"]


def full(target, folder):
    """Every part on the doubles, with guard and the daemon as they are."""
    environment = surroundings(folder, target)
    for build in (8799, 10605):
        archive(f"{folder}/b{build}.tar.xz", doubles())
    words = ["--out", f"{folder}/out", "--work", f"{folder}/work", "--plimsoll", f"{target}/debug/plimsoll", "--libraries", f"{target}/guard",
             "--engine-archive", f"{folder}/b8799.tar.xz", "--engine-archive", f"{folder}/b10605.tar.xz", "--seconds", "500"]
    smaller = {"rows": 6, "workers": 2, "process_rows": 3, "prompt": 100, "predict": 4, "depth": 100, "pairs": 2, "bench_pairs": 4, "part_seconds": 120}
    run(environment, *words, "--smaller", json.dumps(smaller))
    found = results(f"{folder}/out")
    for part in found.values():
        assert "failed" not in part, part
    assert found["calibrate-b10605"]["measured"]["schema"] == "plimsoll.calibration/1", found["calibrate-b10605"]
    assert found["process"]["complete"] and [row["depth"] for row in found["process"]["rows"]] == [30000] * 3, found["process"]
    check_guarded(found["spill"], found["bench"], found["prefill"])
    check_causes(found["causes"])
    check_growth(found["growth"])
    check_admission(found["admission"])
    server = f"{folder}/ik"
    os.makedirs(server)
    with open(f"{server}/llama-server", "w") as file:
        file.write(doubles()["llama-server"])
    os.chmod(f"{server}/llama-server", 0o755)
    run(environment, "--server", server, "--out", f"{folder}/ik-out", "--work", f"{folder}/ik-work", "--plimsoll", f"{target}/debug/plimsoll", script="ik.py")
    check_ik(results(f"{folder}/ik-out")["ik"])


def lanes(target, folder):
    """Two commands side by side, a card each: every row is one lane's, and both find the engines that the first one brought."""
    environment = surroundings(folder, target, 2)
    second = {**CARD, "uuid": "GPU-00000002-0000-0000-0000-000000000000", "pci": "00000000:02:00.0"}
    environment.update(PLIMSOLL_FAKE_NVML_CARDS=json.dumps([CARD, second]),
                       CUDA_FAKE=f"cards=2 total=141G context=0 uuids={CARD['uuid']},{second['uuid']}")
    for build in (8799, 10605):
        archive(f"{folder}/b{build}.tar.xz", doubles())
    smaller = {"rows": 8, "workers": 2, "process_rows": 4, "process_depth": 100, "part_seconds": 60}
    words = ["--work", f"{folder}/work", "--plimsoll", f"{target}/debug/plimsoll", "--libraries", f"{target}/guard", "--seconds", "200",
             "--smaller", json.dumps(smaller)]
    archives = [word for build in (8799, 10605) for word in ("--engine-archive", f"{folder}/b{build}.tar.xz")]
    own = (["--out", f"{folder}/out", "--parts", "matrix-b10605,process", *archives],
           ["--out", f"{folder}/out/1", "--parts", "causes,calibrate-b10605,process"])
    commands = [subprocess.Popen([sys.executable, f"{HERE}/run.py", "--lane", str(lane), *words, *more], env=environment, stdout=subprocess.DEVNULL)
                for lane, more in enumerate(own)]
    assert [command.wait(300) for command in commands] == [0, 0]
    first, second = results(f"{folder}/out"), results(f"{folder}/out/1")
    measured = [(row["model"], row["args"]) for found in (first, second) for row in found["process"]["rows"]]
    assert len(measured) == len(set(measured)) == 4, measured
    assert first["matrix-b10605"]["complete"] and any(row["cards"] == 2 for row in first["matrix-b10605"]["rows"]), first["matrix-b10605"]
    assert second["causes"]["complete"], second["causes"]


ENGINE = """#!/bin/sh
# fake-engine with what model m8 takes, of the driver.
export PLIMSOLL_FAKE_ENGINE="cuda=1 vram=2359296000 vram_per_token=2048 slots=4 events=8 delay_ms=5"
exec {program} "$@"
"""


def load(target, folder):
    """A load on a served model, on a card that all processes share."""
    usage = f"{folder}/usage"
    environment = surroundings(folder, target)
    environment.update(CUDA_FAKE=f"total=141G context=500M shared={usage} uuids={CARD['uuid']}",
                       PLIMSOLL_FAKE_NVML_CARDS=json.dumps([{**CARD, "total": 141 << 30, "free": 141 << 30, "usage": usage}]))
    server = f"{folder}/server"
    os.makedirs(server)
    with open(f"{server}/llama-server", "w") as file:
        file.write(ENGINE.format(program=f"{target}/debug/fake-engine"))
    os.chmod(f"{server}/llama-server", 0o755)
    smaller = {"soak_for": 5}
    run(environment, "--server", server, "--out", f"{folder}/load-out", "--work", f"{folder}/load-work", "--plimsoll", f"{target}/debug/plimsoll",
        "--libraries", f"{target}/guard", "--seconds", "180", "--smaller", json.dumps(smaller), script="load.py")
    check_load(results(f"{folder}/load-out")["load"]["parts"])


def real(target, folder, engine):
    """The whole matrix, over the phantom in the card's place: all of it must be exact, because both sides are the same engine."""
    build, bin = engine.split("=")
    programs = {name: PHANTOM.format(phantom=f"{target}/guard/libplimsoll_phantom.so", program=f"{bin}/{name}")
                for name in ("llama-server", "llama-fit-params") if os.path.exists(f"{bin}/{name}")}
    archive(f"{folder}/b{build}.tar.xz", programs)
    run(surroundings(folder, None, cards=2), "--out", f"{folder}/out", "--work", f"{folder}/work", "--plimsoll", f"{target}/debug/plimsoll", "--libraries",
        f"{target}/guard", "--engine-archive", f"{folder}/b{build}.tar.xz", "--parts", f"matrix-b{build}", "--smaller", '{"workers": 2, "part_seconds": 540}',
        "--seconds", "550")
    for row in results(f"{folder}/out")[f"matrix-b{build}"]["rows"]:
        assert "skipped" in row or set(row["exact"]["off_mib"].values()) <= {0.0}, row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll")
    parser.add_argument("--target")
    parser.add_argument("--engine")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.engine:
            real(os.path.abspath(options.target), folder, options.engine)
        elif options.target:
            full(os.path.abspath(options.target), folder)
            lanes(os.path.abspath(options.target), tempfile.mkdtemp(dir=folder))
            load(os.path.abspath(options.target), tempfile.mkdtemp(dir=folder))
        else:
            fast(os.path.abspath(options.plimsoll), folder)
    print("the dry run is as it should be")


if __name__ == "__main__":
    main()
