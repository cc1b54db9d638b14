"""What the parts of `run.py` share: the bundle's programs, models made once, the cards as they are, and results that outlive a cut.

All results lie in one file, `results.json`, written anew (and moved into place) whenever a part has something more, so that a command
that is cut off keeps what was written. A copy stays in the folder of work, so that the next command on the
same machine goes on from there; `--have` names the results of an earlier machine. Two commands may run side by side over one folder of work, each
with a card of its own (a lane): models and engines are shared, results and logs are not.
"""

import argparse
import hashlib
import json
import os
import subprocess
import threading
import time
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


@dataclass(frozen=True)
class Build:
    """An engine that is there: its number (of another family its name) and the folder of its programs."""

    number: int | str
    folder: str

    @property
    def name(self):
        return f"b{self.number}" if isinstance(self.number, int) else self.number

    @property
    def engine(self):
        """As `plimsoll plan --engine` takes it."""
        return f"llama.cpp@{self.number}" if isinstance(self.number, int) else self.number

    def program(self, name):
        return f"{self.folder}/{name}"

    def has(self, name):
        return os.path.exists(self.program(name))

    @property
    def server(self):
        return self.program("llama-server")

    @property
    def bench(self):
        return self.program("llama-bench")

    def numbered(self, folder):
        """The server under a name that knows its number: a build outside a checkout calls itself 0, and who asks it plans by what it says."""
        path = f"{folder}/llama-server"
        with open(path, "w") as script:
            script.write(f'#!/bin/sh\n[ "$1" = --version ] && echo "version: {self.number} ({self.name})" && exit\nexec "{self.server}" "$@"\n')
        os.chmod(path, 0o755)
        return path


@dataclass(frozen=True)
class Card:
    name: str
    total_mib: int
    compute: str
    index: int = 0

    def spec(self, free=None, **more):
        """As `plimsoll --card` takes it; with nothing but the driver's own reserve taken, unless `free` bytes are named."""
        free = f"{free}B" if free is not None else f"{self.total_mib - 632}MiB"
        words = {"name": self.name, "total": f"{self.total_mib}MiB", "free": free, "cc": self.compute, **more}
        return ",".join(f"{key}={value}" for key, value in words.items())


def cards():
    """The cards as nvidia-smi shows them."""
    rows = subprocess.run(["nvidia-smi", "--query-gpu=name,memory.total,compute_cap", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, check=True).stdout.splitlines()
    cells = [[cell.strip() for cell in row.split(",")] for row in rows if row.strip()]
    # Calibrated values are kept by the short name.
    return [Card(name.replace("NVIDIA ", "").replace(" ", "-"), int(total), compute, index) for index, (name, total, compute) in enumerate(cells)]


def first_present(*paths):
    return next((path for path in paths if os.path.exists(path)), paths[0])


def alone(description, work, seconds):
    """The options of a script that measures one thing by itself, beside `run.py`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--server", "--out", "--plimsoll", "--libraries", "--table"):
        parser.add_argument(name)
    parser.add_argument("--work", default=work)
    parser.add_argument("--have", action="append", default=[])
    parser.add_argument("--seconds", type=float, default=seconds)
    parser.add_argument("--lane", type=int, help="the one card that is this command's, where another measures on the other")
    parser.add_argument("--smaller", default="{}", help="for a rehearsal: JSON of settings that make the parts shorter")
    return parser


class Session:
    def __init__(self, out, work, have=(), plimsoll=None, libraries=None, smaller=None, lane=None):
        """`lane` is the one card that is this command's own; a configuration that needs several has them all, whoever owns them."""
        self.out, self.work = os.path.abspath(out), os.path.abspath(work)
        self.lane = "" if lane is None else f"-{lane}"
        self.logs, self.kept = f"{self.work}/logs{self.lane}", f"{self.work}/results{self.lane}.json"
        for folder in (self.out, self.work, f"{self.work}/models", self.logs):
            os.makedirs(folder, exist_ok=True)
        self.plimsoll = os.path.abspath(plimsoll or f"{ROOT}/bin/plimsoll")
        libraries = os.path.abspath(libraries or f"{ROOT}/lib/plimsoll")
        self.guard, self.phantom = (f"{libraries}/libplimsoll_{name}.so" for name in ("guard", "phantom"))
        self.smaller = smaller or {}
        self.cards = cards()
        self.own = self.cards if lane is None else [self.cards[lane]]
        self.first_lane, self.gate = not lane, f"{self.work}/all-cards-were-used"
        os.environ.update(CUDA_DEVICE_ORDER="PCI_BUS_ID", CUDA_VISIBLE_DEVICES=str(self.own[0].index))
        self.start = time.monotonic()
        self.lock = threading.RLock()
        self.results = {}
        for path in (*(f"{folder}/results.json" for folder in have), self.kept):
            if os.path.exists(path):
                with open(path) as file:
                    self.results.update(json.load(file))

    @classmethod
    def asked(cls, options):
        """As the options of `alone` have it."""
        return cls(options.out, options.work, options.have, options.plimsoll, options.libraries, json.loads(options.smaller), options.lane)

    def setting(self, name, usual):
        """A size of a measurement; a rehearsal makes it smaller."""
        return self.smaller.get(name, usual)

    def environment(self):
        """Plans by published values only: no figure of this machine lies where they are looked for."""
        return {**os.environ, "PLIMSOLL_GUARD_LIBRARY": self.guard, "PLIMSOLL_PHANTOM_LIBRARY": self.phantom, "XDG_CONFIG_HOME": f"{self.work}/published"}

    def calibrated(self, build):
        """The folder of settings in which this build's context is kept, once the part `calibrate` has measured it."""
        return f"{self.work}/calibrated-{build.name}"

    def say(self, what):
        line = f"{time.monotonic() - self.start:6.1f} s  {what}"
        with self.lock, open(f"{self.out}/steps.txt", "a") as steps:
            print(line, file=steps, flush=True)
        print(line, flush=True)

    def release(self):
        """What takes all cards is done with: other lanes may use their own."""
        open(self.gate, "w").close()

    def released(self):
        """May this lane use its card? Without a word from the first lane it does so after seven minutes."""
        return self.first_lane or os.path.exists(self.gate) or time.monotonic() - self.start > 420

    def claim(self, what):
        """Is this row this lane's? The first that asks has it, for all commands over this folder of work."""
        try:
            os.close(os.open(f"{self.work}/claimed {what}", os.O_CREAT | os.O_EXCL))
            return True
        except FileExistsError:
            return not self.lane

    def done(self, part):
        return self.results.get(part, {}).get("complete", False)

    def keep(self, part, result):
        """Writes what a part has so far, beside what all others have."""
        with self.lock:
            self.results[part] = result
            self.write()

    def write(self):
        with self.lock:
            text = json.dumps(self.results, indent=1)
            for path in (f"{self.out}/results.json", self.kept):
                with open(f"{path}.new", "w") as file:
                    file.write(text)
                os.replace(f"{path}.new", path)

    def model(self, name, *options):
        """The path of a synthetic model; the program `specimen` beside plimsoll writes it if it is not there."""
        path = "-".join([f"{self.work}/models/{name}", *(option.lstrip("-") for option in options)]) + ".gguf"
        with self.lock:
            if not os.path.exists(path):
                new = path.replace(".gguf", f"{self.lane}.new.gguf")
                specimen = os.path.join(os.path.dirname(self.plimsoll), "specimen")
                made = subprocess.run([specimen, name, *options, new], capture_output=True, text=True)
                if made.returncode != 0:
                    raise OSError(f"specimen {name}: {made.stderr.strip()}")
                os.replace(new, path)
        return path

    def plan(self, build, flags, cards=1, program="llama-server", specs=None, extra=None):
        """`plimsoll plan --json` of these flags, by formula; `OSError` with its words where it refuses."""
        specs = specs or [card.spec() for card in self.cards_for(cards)]
        command = [self.plimsoll, "plan", "--json", "--engine", build.engine, "--program", program]
        for spec in specs:
            command += ["--card", spec]
        said = subprocess.run([*command, "--", *flags], capture_output=True, text=True, env={**self.environment(), **(extra or {})})
        if not said.stdout.startswith("{"):
            raise OSError(f"plimsoll plan ended with {said.returncode}: {said.stderr.strip()[-600:]}")
        return json.loads(said.stdout)

    def cards_for(self, count):
        """So many cards: the machine's own, and the first again where there are fewer."""
        return [self.cards[index] if index < len(self.cards) else self.cards[0] for index in range(count)]


def verify(bundle):
    """The files of a bundle against its manifest; what differs, by name."""
    with open(f"{bundle}/MANIFEST.json") as file:
        manifest = json.load(file)
    wrong = []
    for entry in manifest["files"]:
        try:
            with open(f"{bundle}/{entry['path']}", "rb") as file:
                if hashlib.sha256(file.read()).hexdigest() != entry["sha256"]:
                    wrong.append(f"{entry['path']} is not what was packed")
        except OSError as error:
            wrong.append(f"{entry['path']}: {error.strerror}")
    return wrong
