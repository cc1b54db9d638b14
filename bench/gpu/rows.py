"""What an engine on a real card says of its buffers and asks of the CUDA runtime, where a second model or a projector is on the card.

usage: rows.py --source FILE --out FOLDER --plimsoll PROGRAM [--libraries FOLDER] [--work FOLDER] [--seconds 580] [--server FOLDER]
FILE is an archive of llama.cpp's source (`llama.cpp/` in it), which is built here with CUDA; FOLDER of --server holds a build of it instead. `specimen` lies
beside PROGRAM. A command that is cut off is repeated with the same folders: build and rows go on where they stopped.

A row holds the lines of the engine's log, and each `cudaMalloc` in order as [card, bytes], below 0 for what was freed again (`requests.c`, preloaded). So the
weights of a projector, of which no line tells, are in it. With `libplimsoll_phantom.so` in the folder of --libraries the same engine is asked over the phantom,
and the row says whether its requests were equal. `rows.json` is written after each row, in the format of `data/measured`.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from datetime import date

import engines
import matrix
from gpu import Until
from session import HERE, Build, Session, alone

RELEASE = "0.5.0"
# A draft and a projector on the card, with the sizes of cache and micro-batch that move their terms.
ROWS = [
    {"model": "l8", "draft": "llama-1b", "args": "-c 8192 -fa on --spec-draft-n-max 8 -np 1"},
    {"model": "gemma3-4b", "projector": "gemma3-4b-mmproj", "args": "-c 16384 -fa on -ctk q8_0 -ctv q8_0 -np 1"},
    {"model": "l8", "draft": "llama-1b", "args": "-c 16384 -fa on -ctkd q8_0 -ctvd q8_0 -ub 1024"},
    {"model": "gemma3-4b", "projector": "gemma3-4b-mmproj", "args": "-c 8192 -fa off"},
    {"model": "q30", "draft": "llama-1b", "args": "-c 4096 -fa on -ub 256"},
    {"model": "gemma3-4b", "projector": "gemma3-4b-mmproj", "args": "-c 8192 -fa on"},
    {"model": "qwen2-7b", "draft": "llama-1b", "args": "-c 16384 -fa on"},
    {"model": "gemma3-4b", "projector": "gemma3-4b-mmproj", "args": "-c 32768 -fa on -np 1 --no-mmproj-offload"},
]
NAMES = ("libcudart.so.12", "libcudart.so.13", "libcublas.so.12", "libcublas.so.13", "libcuda.so.1")


def built(session, source):
    """The folder of a server with CUDA, built once in the folder of work."""
    folder, log = f"{session.work}/build-{RELEASE}", f"{session.work}/build-{RELEASE}.log"
    if not os.path.exists(f"{folder}/whole"):
        if not os.path.exists(f"{session.work}/source-{RELEASE}/whole"):
            engines.unpacked(source, f"{session.work}/source-{RELEASE}")
            open(f"{session.work}/source-{RELEASE}/whole", "w").close()
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        session.say(f"begins to build {RELEASE}")
        jobs = str(os.cpu_count() + 2)
        for command in (["cmake", "-S", f"{session.work}/source-{RELEASE}/llama.cpp", "-B", folder, *generator, *engines.CMAKE],
                        ["cmake", "--build", folder, "-j", jobs, "--target", "llama-server"]):
            with open(log, "ab") as said:
                if subprocess.run(command, stdout=said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL).returncode != 0:
                    with open(log, errors="replace") as lines:
                        sys.exit(f"{' '.join(command)} failed:\n{''.join(lines.readlines()[-30:])}")
        open(f"{folder}/whole", "w").close()
        session.say(f"{RELEASE} is built")
    return f"{folder}/bin"


def preloaded(session):
    """The library that writes requests down."""
    library = f"{session.work}/librequests.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"{HERE}/requests.c", "-o", library, "-ldl"], check=True)
    return library


def over_phantom(session):
    """The environment in which the phantom stands for one card, or None where it is not there."""
    if not os.path.exists(session.phantom):
        return None
    folder = f"{session.work}/phantom-names"
    os.makedirs(folder, exist_ok=True)
    for name in NAMES:
        if not os.path.lexists(f"{folder}/{name}"):
            os.symlink(session.phantom, f"{folder}/{name}")
    card = session.own[0]
    return {"LD_PRELOAD": session.phantom, "LD_LIBRARY_PATH": folder,
            "PLIMSOLL_PHANTOM_CARDS": f"total={card.total_mib << 20},free={card.total_mib - 632 << 20},cc={card.compute}"}


def requested(path):
    """Requests as `requests.c` wrote them."""
    with open(path) as lines:
        return [[int(word) for word in line.split()] for line in lines]


def reported(path):
    """The same of a report of the phantom."""
    taken, found = {}, []
    with open(path) as lines:
        for event in map(json.loads, lines):
            if event["event"] == "take" and event["kind"] in ("device", "managed"):
                taken[event["id"]] = [event["device"], event["bytes"]]
                found.append(taken[event["id"]])
            elif event["event"] == "give" and event["id"] in taken:
                device, size = taken[event["id"]]
                found.append([device, -size])
    return found


def asked(session, build, row, environment, path):
    """The engine's lines, run in this environment; `path` is its file of requests, written anew."""
    if os.path.exists(path):
        os.unlink(path)
    before = os.environ.get("LD_LIBRARY_PATH")
    libraries = environment.pop("LD_LIBRARY_PATH", None)
    try:
        if libraries:
            os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, [libraries, before]))
        found = matrix.ask(session, build, row, "llama-server", environment)
    finally:
        if before is None:
            os.environ.pop("LD_LIBRARY_PATH", None)
        else:
            os.environ["LD_LIBRARY_PATH"] = before
    if "failed" in found:
        raise OSError(" | ".join(found["failed"])[-1500:])
    return found["log"]


def measured(session, build, row, library):
    path = f"{session.logs}/requests"
    log = asked(session, build, row, {"LD_PRELOAD": library, "REQUESTS": path}, path)
    found = {**row, "log": log, "requests": requested(path)}
    if environment := over_phantom(session):
        report = f"{session.logs}/report"
        said = asked(session, build, row, {**environment, "PLIMSOLL_PHANTOM_REPORT": report}, report)
        found["phantom"] = {"requests_equal": reported(report) == found["requests"], "lines_equal": said == log}
    return found


def main():
    parser = alone(__doc__, "/tmp/plimsoll-rows", 580)
    parser.add_argument("--source")
    options = parser.parse_args()
    if not options.out or not (options.source or options.server):
        parser.error("--out and --source (or --server) are needed")
    until, session = Until(options.seconds), Session.asked(options)
    build = Build(RELEASE, os.path.abspath(options.server) if options.server else built(session, options.source))
    library, card = preloaded(session), session.own[0]
    result = session.results.get("rows") or {
        "what": "the engine's own buffer lines, and each cudaMalloc in order as [card, bytes], below 0 for what was freed: a draft or a projector on the card",
        "engine": f"llama.cpp {RELEASE}, CUDA, sm_90", "gpu": f"{card.name}, {card.total_mib} MiB", "date": str(date.today()),
        "card": f"total={card.total_mib << 20}B,free={card.total_mib - 632 << 20}B,cc={card.compute}",
        "command": "bench/gpu/rows.py: llama-server -m MODEL ARGS -fit off -dev CUDA0 -lv 4 --no-warmup (without it for a projector)", "rows": []}
    done, failed = {matrix.key({**row, "cards": 1}) for row in result["rows"]}, 0
    for row in ({**row, "program": "llama-server", "cards": 1} for row in ROWS[:session.setting("rows", len(ROWS))]):
        if until.passed():
            failed += 1
            break
        if matrix.key(row) in done:
            continue
        start = time.monotonic()
        try:
            result["rows"].append(measured(session, build, row, library))
        except OSError as error:  # one bad row must not cost the others
            session.say(f"{row['model']} {row['args']}: {error}")
            failed += 1
            continue
        found = result["rows"][-1]
        session.say(f"{row['model']} {row['args']}: {len(found['requests'])} requests, {sum(size for _, size in found['requests']) / (1 << 20):.2f} MiB, "
                    f"{found.get('phantom', 'no phantom')}, {time.monotonic() - start:.1f} s")
        session.keep("rows", result)
        with open(f"{session.out}/rows.json", "w") as file:
            file.write(json.dumps(result, indent=1) + "\n")
    print(f"{len(result['rows'])} of {len(ROWS)} rows")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
