"""Four models and eight clients on a budget for some of the models: answers, waits and memory of a minute, for several servers one after the other.

usage: four.py --out FOLDER --plimsoll PROGRAM [--before PROGRAM] [--swap PROGRAM] --server FOLDER --specimen PROGRAM [--seconds 60] [--budget 40]
               [--pattern any|own] [--only NAME;NAME]
       four.py --out FOLDER --plimsoll PROGRAM --dry ENGINE      a rehearsal without a card: fake engines, a tenth of the memory and of the time
       four.py --out FOLDER --gguf FILE FILE …                   the same with models of your own, and the programs of PATH: `bench/compare` calls this
       four.py --table FOLDER                                    prints the table of the results that are there
`--before` is an older build of plimsoll, `--swap` is llama-swap, once with a model at a time and once with groups that fit the budget, `--server` the folder of a llama-server with a router, `--specimen` the program that writes the models
(m8, l8, oss and q30: 2.8, 9.3, 12.3 and 33.7 GiB with a context of 32768 tokens; headers alone, so that they take no disk). A client asks for one
answer after the other: of any model by chance, the same sequence for each server, or of one model of its own. nvidia-smi is read twice a second.
Models of your own get all of the first card, or --budget GiB of it, and --context tokens for four slots; the router is run with each number of models below theirs.
Results are written as they come to results.json, one server after the other, so that a run that is cut short goes on with the next server.
"""

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

MODELS = {"m8": 2.8, "l8": 9.3, "oss": 12.3, "q30": 33.7}
NAMES = list(MODELS)
CLIENTS = 8


def flags(options):
    return f"-ngl 99 -c {options.context} -np 4 --kv-unified -fa on -fit off --cache-ram 0"


def path_of(options, model):
    return options.paths.get(model) or f"{options.models}/{model}.gguf"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A server of the four models, in a process group of its own."""

    def __init__(self, options, name, words, environment):
        self.port = free_port()
        self.said = open(f"{options.out}/{name}.log", "w")
        words = [word.replace("@PORT", str(self.port)) for word in words]
        self.process = subprocess.Popen(words, stdout=self.said, stderr=self.said, env={**os.environ, **environment}, start_new_session=True)
        until = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2).read()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    self.stop()
                    raise OSError(f"{name} does not serve: see {options.out}/{name}.log") from None
                time.sleep(0.1)

    def answer(self, model, tokens, timeout):
        """Seconds to the first byte of an answer, read to its end."""
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "ship"}], "max_tokens": tokens, "stream": True})
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/chat/completions", body.encode(), {"content-type": "application/json"})
        asked, first, last = time.monotonic(), None, b""
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            for line in reply:
                # Comments that keep a connection open are no part of the answer.
                if line.startswith(b"data:"):
                    first = first or time.monotonic() - asked
                    last = line
        if b"[DONE]" not in last:
            raise OSError(f"the answer breaks off: {last[:200]!r}")
        return first

    def stop(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(30)
        self.said.close()


def memory():
    """MiB in use on the first card; None without nvidia-smi."""
    try:
        words = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[0])
    except (OSError, subprocess.CalledProcessError, IndexError, ValueError):
        return None


def plimsoll(options, program, name):
    """A configuration of the four models, and the words that serve it."""
    path = f"{options.out}/{name}.toml"
    with open(path, "w") as file:
        for model, gib in MODELS.items():
            if options.dry:
                script = f"load_ms={int(70 + 10 * gib)} delay_ms={int(4 + 0.4 * gib)}"
                file.write(f'[models.{model}]\ncmd = "{options.dry} --port ${{PORT}} --alias {model}"\nmemory = "{int(gib * 100)}MiB"\n'
                           f'env = {{ PLIMSOLL_FAKE_ENGINE = "{script}" }}\n')
            else:
                file.write(f'[models."{model}"]\nmodel = "{path_of(options, model)}"\nflags = "{flags(options)}"\n')
        if options.dry:
            file.write('[serve]\npatience = "500ms"\n')
    words = [program, "serve", path, "--listen", "127.0.0.1:@PORT"]
    if options.dry:
        return [*words, "--card", f"name=host,kind=host,total={options.budget * 100}MiB"], {}
    words += ["--engine", f"{options.server}/llama-server"]
    if options.budget:
        card = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
        words += ["--card", f"name={card.strip()},total={options.budget}GiB"]
    return words, {"LD_LIBRARY_PATH": libraries(options)}


def libraries(options):
    return ":".join(filter(None, [options.server, os.environ.get("LD_LIBRARY_PATH")]))


def router(options, at_most):
    path = f"{options.out}/router.ini"
    with open(path, "w") as file:
        for model in MODELS:
            file.write(f"[{model}]\nmodel = {path_of(options, model)}\nn-gpu-layers = 99\nctx-size = {options.context}\nparallel = 4\nkv-unified = true\n"
                       "flash-attn = on\nfit = off\ncache-ram = 0\n")
    words = [f"{options.server}/llama-server", "--models-preset", path, "--models-max", str(at_most), "--host", "127.0.0.1", "--port", "@PORT"]
    return words, {"LD_LIBRARY_PATH": libraries(options)}


def swap(options, grouped):
    """llama-swap: one model at a time, or the smallest always, beside the two in the middle or the largest."""
    engine = (lambda model: f"{options.dry} --alias {model}") if options.dry else (
        lambda model: f"{options.server}/llama-server -m {path_of(options, model)} {flags(options)} --host 127.0.0.1")
    lines = ["models:"]
    for model in MODELS:
        lines += [f"  \"{model}\":", f'    cmd: "{engine(model)} --port ${{PORT}}"']
    if grouped:
        lines += ["groups:"]
        for group, members, persistent in (("always", ["m8"], "true"), ("pair", ["l8", "oss"], "false"), ("large", ["q30"], "false")):
            exclusive = "false" if persistent == "true" else "true"
            lines += [f"  {group}:", "    swap: false", f"    exclusive: {exclusive}", f"    persistent: {persistent}", f"    members: [{', '.join(members)}]"]
    path = f"{options.out}/swap{'-groups' if grouped else ''}.yaml"
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")
    return [options.swap, "--config", path, "--listen", "127.0.0.1:@PORT"], {} if options.dry else {"LD_LIBRARY_PATH": libraries(options)}


def client(options, server, number, end, rows):
    chance = random.Random(number)
    while time.monotonic() < end:
        model = chance.choice(NAMES) if options.pattern == "any" else NAMES[number % len(NAMES)]
        try:
            # A request that was asked in time and answered after the end counts for its wait alone.
            first = server.answer(model, options.tokens, 120)
            rows.append({"model": model, "first": first, "counts": time.monotonic() <= end})
        except OSError as error:
            rows.append({"model": model, "failed": str(error)[:300]})
            time.sleep(0.05)


def minute(options, name, words, environment):
    before = memory()
    server = Server(options, name, words, environment)
    rows, peak, done = [], [before or 0], threading.Event()

    def sample():
        while not done.wait(0.5):
            peak[0] = max(peak[0], memory() or 0)

    try:
        end = time.monotonic() + options.seconds
        threads = [threading.Thread(target=client, args=(options, server, number, end, rows)) for number in range(CLIENTS)]
        sampler = threading.Thread(target=sample)
        for thread in [sampler, *threads]:
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        sampler.join()
    finally:
        server.stop()
    return {"rows": rows, "peak_mib": None if before is None else peak[0] - before}


def percentile(numbers, share):
    ordered = sorted(numbers)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else None


def table(results):
    lines = [f"{'':<18} {'answers':>7} {'failed':>6}  " + "  ".join(f"{model:>18}" for model in NAMES) + f"  {'peak GiB':>8}",
             f"{'':<34}" + "  ".join(f"{'n   p50   p99 s':>18}" for _ in NAMES)]
    for name, result in results.items():
        answered = [row for row in result["rows"] if "first" in row]
        cells = []
        for model in NAMES:
            waits = [row["first"] for row in answered if row["model"] == model]
            count = sum(row["counts"] for row in answered if row["model"] == model)
            p50, p99 = percentile(waits, 0.5), percentile(waits, 0.99)
            cells.append(f"{count:>5} {p50:>6.2f} {p99:>5.1f}" if waits else f"{0:>5} {'-':>6} {'-':>5}")
        peak = "-" if result["peak_mib"] is None else f"{result['peak_mib'] / 1024:.1f}"
        total, failed = sum(row["counts"] for row in answered), len(result["rows"]) - len(answered)
        lines.append(f"{name:<18} {total:>7} {failed:>6}  " + "  ".join(f"{cell:>18}" for cell in cells) + f"  {peak:>8}")
    return "\n".join(lines)


def prepare(options):
    """Writes the models and reads them once, so that each server finds them in the page cache."""
    options.models = f"{options.out}/models"
    os.makedirs(options.models, exist_ok=True)
    for model in MODELS:
        path = path_of(options, model)
        if not os.path.exists(path):
            subprocess.run([options.specimen, model, path], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


def use_own(parser, options):
    """Models of the user's, and the programs of PATH where none is named."""
    options.plimsoll = options.plimsoll or shutil.which("plimsoll")
    options.swap = options.swap or shutil.which("llama-swap")
    engine = shutil.which("llama-server")
    options.server = options.server or engine and os.path.dirname(os.path.realpath(engine))
    for path in options.gguf:
        name = os.path.basename(path).removesuffix(".gguf")
        if not os.path.isfile(path):
            parser.error(f"{path} is no file")
        if name in options.paths or not all(letter.isalnum() or letter in "._-" for letter in name):
            parser.error(f"{path}: the file's name is the model's; give each its own, of letters, digits, '.', '_' and '-'")
        options.paths[name] = os.path.abspath(path)
    if not options.plimsoll or not options.server:
        parser.error("plimsoll or llama-server is not in PATH; name them by --plimsoll PROGRAM and --server FOLDER")
    MODELS.clear()
    MODELS.update(dict.fromkeys(options.paths, 0))
    NAMES[:] = MODELS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--out", "--plimsoll", "--before", "--server", "--specimen", "--dry", "--table", "--swap", "--only"):
        parser.add_argument(name)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--budget", type=int)
    parser.add_argument("--context", type=int, default=32768)
    parser.add_argument("--gguf", nargs="+")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--pattern", choices=["any", "own"], default="any")
    options = parser.parse_args()
    kept = f"{options.table or options.out}/results.json"
    results = {}
    if os.path.exists(kept):
        with open(kept) as file:
            results = json.load(file)
    if options.table:
        print(table(results))
        return 0
    options.paths = {}
    if options.gguf:
        use_own(parser, options)
    else:
        options.budget = options.budget or 40
    if not options.out or not options.plimsoll or not (options.gguf or options.dry or options.server and options.specimen):
        parser.error("--out, --plimsoll, and --server with --specimen, or --dry, are needed")
    for name in ("out", "plimsoll", "before", "server", "specimen", "dry", "swap"):
        if path := getattr(options, name):
            setattr(options, name, os.path.abspath(path))
    os.makedirs(options.out, exist_ok=True)
    if not options.dry:
        prepare(options)
    own = "plimsoll" if options.gguf else "now"
    systems = {own: lambda: plimsoll(options, options.plimsoll, own)}
    if options.before:
        systems["before"] = lambda: plimsoll(options, options.before, "before")
    if options.swap:
        systems["llama-swap"] = lambda: swap(options, False)
        if not options.gguf:
            systems["llama-swap, groups"] = lambda: swap(options, True)
    if not options.dry:
        systems |= {f"router, {at_most}": lambda at_most=at_most: router(options, at_most) for at_most in (range(1, len(MODELS)) if options.gguf else (2, 3))}
    if options.only:
        systems = {name: words for name, words in systems.items() if name in options.only.split(";")}
    for name, words in systems.items():
        # Numbers of different patterns and times are kept apart by folder, not here.
        if name not in results:
            try:
                results[name] = minute(options, name.replace(", ", "-"), *words())
            except OSError as error:
                print(f"{name}: {error}", file=sys.stderr)
                continue
            with open(kept, "w") as file:
                json.dump(results, file)
    print(table(results))
    return int(len(results) < len(systems))


if __name__ == "__main__":
    sys.exit(main())
