"""A small card's load on a large one: a minute of requests to a served model, and a sweep against plan.

usage: load.py --server FOLDER --out FOLDER [--build 10605] [--seconds 190] [--free 8192] [--work FOLDER] [--plimsoll PROGRAM] [--libraries FOLDER]
       load.py --table FOLDER         prints the table of the results that are there
FOLDER holds a CUDA build's llama-server. All of the card but `--free` MiB is taken by plain allocations of another process, so that it is the driver that
refuses, NVML that tells, and nothing is under a budget: what a card of 8 GiB would do. `plimsoll serve` runs a model of 2.7 GiB there. Results are
written as they come. Exit status 1 if a part failed; what the machine lacks is said and skipped.
"""

import json
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request

from gpu import Until, ended, taken
from provoke import Lacking
from session import Build, Session, alone

MIB = 1 << 20
FLAGS = "-ngl 99 -c 32768 -np 4 --kv-unified -ub 512 -fa on -fit off --cache-ram 0"
CONFIG = '[serve]\nwait = "{wait}"\n[models.m8]\nmodel = "{model}"\nflags = "{flags}"\n'
BALLAST = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
device, handle, at, free, total = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_size_t()
if any([cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(handle), device), cuda.cuCtxSetCurrent(handle)]):
    sys.exit("no context on the card")
for size in (1 << 30, 16 << 20):
    while cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0 and free.value > (int(sys.argv[1]) << 20) + size:
        if cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size)):
            break
print(free.value >> 20, flush=True)
sys.stdin.read()
"""


class Ballast:
    """Another process that holds the card but for so many MiB."""

    def __init__(self, free_mib):
        self.process = subprocess.Popen([sys.executable, "-c", BALLAST, str(free_mib)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        said = self.process.stdout.readline()
        if not said.strip():
            raise Lacking(f"the card cannot be filled: {self.process.wait()}")
        self.free_mib = int(said)

    def stop(self):
        self.process.stdin.close()
        self.process.wait(30)


class Daemon:
    """`plimsoll serve` of one model on the card as NVML shows it."""

    def __init__(self, session, build, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with open(f"{folder}/plimsoll.toml", "w") as config:
            config.write(CONFIG.format(model=session.model("m8"), flags=session.setting("flags", FLAGS), wait=session.setting("wait", "20s")))
        environment = {**session.environment(), "LD_LIBRARY_PATH": ":".join(filter(None, [build.folder, os.environ.get("LD_LIBRARY_PATH")]))}
        self.said = f"{session.logs}/serve.log"
        self.process = subprocess.Popen([session.plimsoll, "serve", f"{folder}/plimsoll.toml", "--listen", self.url.removeprefix("http://"), "--engine",
                                         build.numbered(folder), "--reserve", "0", "--log-file", f"{session.logs}/engine.log"],
                                        env=environment, stdout=subprocess.PIPE, stderr=open(self.said, "w"))
        if not self.process.stdout.readline():
            raise OSError(f"plimsoll serve ended with {self.process.wait()}: {end(self.said)}")

    def answers(self, seconds):
        """Waits until it serves its model again: what the part before had on the card may have left only now."""
        body = json.dumps({"model": "m8", "messages": [{"role": "user", "content": "ship"}], "max_tokens": 1}).encode()
        limit = Until(seconds)
        while not limit.passed():
            try:
                urllib.request.urlopen(urllib.request.Request(f"{self.url}/v1/chat/completions", body, {"content-type": "application/json"}), timeout=60)
                return
            except OSError:
                time.sleep(0.5)

    def stop(self):
        ended(self.process, 20)


def end(path):
    with open(path, errors="replace") as file:
        return file.read()[-1200:]


def asked(session, words, seconds):
    """A command of plimsoll's that prints JSON; what it said besides where it prints none."""
    try:
        done = subprocess.run([session.plimsoll, *words], capture_output=True, text=True, timeout=seconds, env=session.environment())
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {seconds:.0f} s"}
    if not done.stdout.lstrip().startswith("{"):
        return {"failed": f"status {done.returncode}: {done.stderr.strip()[-800:]}"}
    return {"status": done.returncode, **json.loads(done.stdout)}


def soak(session, daemon, until):
    words = ["soak", daemon.url, "--model", "m8", "--for", f"{session.setting('soak_for', min(60, int(until.left())))}s", "--json", "-", "--html", f"{session.pages}/soak.html"]
    return asked(session, words, max(10, until.left() + 15))


def sweep(session, daemon, until):
    words = ["sweep", daemon.url, "--model", "m8", "--depths", session.setting("depths", "1k,2k,4k,8k,16k"), "--json"]
    return asked(session, words, max(10, until.left() + 15))


def measure(session, build, until, options):
    """Each part by its name; what was done before is not done again."""
    result = session.results.get("load") or {"parts": {}}
    parts = {"sweep": sweep, "soak": soak}
    session.pages = f"{session.work}/pages"
    os.makedirs(session.pages, exist_ok=True)
    ballast = Ballast(options.free)
    try:
        result["free_mib"], result["taken_mib"] = ballast.free_mib, taken()
        with tempfile.TemporaryDirectory() as folder:
            daemon = Daemon(session, build, folder)
            try:
                for name, part in parts.items():
                    if until.passed() or "schema" in result["parts"].get(name, {}):
                        continue
                    session.say(name)
                    daemon.answers(20)
                    try:
                        result["parts"][name] = part(session, daemon, until)
                    except Lacking as lacking:
                        result["parts"][name] = {"skipped": str(lacking)}
                    except Exception as error:  # one bad part must not cost the others
                        result["parts"][name] = {"failed": f"{type(error).__name__}: {error}"[:800]}
                    session.keep("load", result)
            finally:
                daemon.stop()
                result["serve_said"] = end(daemon.said)
    finally:
        ballast.stop()
    result["complete"] = all({"schema", "skipped"} & result["parts"].get(name, {}).keys() for name in parts)
    session.keep("load", result)
    # One file: the pages are small and many.
    with tarfile.open(f"{session.out}/pages.tar.gz", "w:gz") as pages:
        pages.add(session.pages, "pages")
    return result


def soaked(found):
    lines = [f"    {found['requests']} requests in {found['seconds']:.0f} s, {found['failed']} failed, leak: {found['leak']}"]
    for figure in found["figures"]:
        lines.append(f"    {figure['name']}: {figure['growth']}, {figure['slope']:.0f} B per request ({figure['slope_low']:.0f} to {figure['slope_high']:.0f}), "
                     f"{figure['last'] // MIB} MiB at the end, once {len(figure['steps'])}")
    return lines


def swept(found):
    lines = [f"    {'tokens':>8} {'prompt t/s':>11} {'answer t/s':>11} {'planned':>8}  memory, MiB"]
    for depth in found["depths"]:
        held = ", ".join(f"{figure['figure']} {figure['bytes'] // MIB}" for figure in depth["held"])
        speed = [f"{value:.0f}" if (value := depth[name]) is not None else "-" for name in ("prompt_per_second", "answer_per_second")]
        lines.append(f"    {depth['tokens']:>8} {speed[0]:>11} {speed[1]:>11} {(depth['planned'] or 0) // MIB:>8}  {depth['failure'] or held}")
    growth = ", ".join(f"{row['figure']} {row['bytes_per_token']:.0f}" for row in found["growth"] if row["bytes_per_token"] is not None)
    return [*lines, f"    bytes per token: {growth}", f"    planned: {json.dumps(found['planned'])}"]


def table(result):
    lines = [f"load: {result.get('free_mib')} MiB of the card free, the rest held by another process"]
    for name, found in result["parts"].items():
        lines.append(f"  {name}:")
        if "schema" not in found:
            lines.append(f"    {'skipped: ' + found['skipped'] if 'skipped' in found else found['failed']}")
        else:
            lines += soaked(found) if name == "soak" else swept(found)
    return lines


def lacking(options):
    """What must be there before anything is begun."""
    if not os.path.exists(f"{options.server}/llama-server"):
        return f"there is no llama-server in {options.server}"
    try:
        taken()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"nvidia-smi shows no card: {error}"
    return None


def main():
    parser = alone(__doc__, "/tmp/plimsoll-gpu-load", 190)
    parser.add_argument("--build", type=int, default=10605, help="the number of that build of llama.cpp")
    parser.add_argument("--free", type=int, default=8192)
    options = parser.parse_args()
    if options.table:
        with open(f"{options.table}/results.json") as file:
            print("\n".join(table(json.load(file)["load"])))
        return 0
    if not options.server or not options.out:
        parser.error("--server and --out are needed")
    if lacks := lacking(options):
        print(lacks)
        return 1
    session = Session.asked(options)
    try:
        result = measure(session, Build(options.build, os.path.abspath(options.server)), Until(options.seconds), options)
    except (OSError, Lacking) as error:
        print(f"nothing was measured: {error}")
        return 1
    print("\n".join(table(result)))
    return int(not result["complete"])


if __name__ == "__main__":
    sys.exit(main())
