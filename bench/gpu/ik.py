"""What ik_llama.cpp takes of a card as one prompt grows to 60 000 tokens, with Kimi K2's latent attention, beside what `plan` says it takes.

usage: ik.py --server FOLDER --out FOLDER [--lane CARD] [--seconds 300] [--have FOLDER] [--work FOLDER] [--plimsoll PROGRAM]
       ik.py --table FOLDER             prints the table of the results that are there
FOLDER holds ik's llama-server and its libraries; this script makes neither. The model is `specimen kimi-k2` with every per-layer size as it
is, fewer layers and fewer experts, so that the weights hide less. What an ik build's context takes is not published, so a row keeps what its
buffers take by its own log, and is judged twice: by the whole process, and by the growth alone.
"""

import json
import os
import re
import sys
import tempfile

from gpu import Engine, Memory, Until, tokens
from session import Build, Session, alone

MIB = 1 << 20
VOCABULARY = 163840
# No fewer experts: with less than a thirty-second of the tokens of a micro-batch they are multiplied another way than Kimi K2's 384 (`mmq_id_thresh`).
MODEL = ["kimi-k2", "--layers", "3", "--experts", "64"]
BASE = "-ngl 99 -b 2048 -fa on -np 1 --cache-ram 0".split()
STEP = 8192
BOUND_PERCENT = 3
# Cache type, -ub, -amb (0 is no bound), -mla; what users run first.
ROWS = [("q8_0", 512, 512, 3), ("f16", 512, 512, 3), ("q8_0", 2048, 512, 3), ("f16", 512, 0, 3), ("q8_0", 512, 0, 3), ("q8_0", 512, 512, 1),
        ("f16", 2048, 512, 3), ("f16", 512, 512, 2)]
BUFFER = re.compile(r"(CUDA\d+|CUDA_Host|CPU)\s+(\S+ )?buffer size\s*=\s*([\d.]+) MiB")


def buffers(log):
    """Every line of the engine's log that tells a buffer's size, as {"CUDA0 KV": MiB}."""
    found = {}
    with open(log, errors="replace") as lines:
        for line in lines:
            for device, what, mib in BUFFER.findall(line):
                # The model's buffers, of which there may be several, come without a word of what they are.
                what = what.strip() or "model"
                found[f"{device} {what}"] = round(found.get(f"{device} {what}", 0) + float(mib), 2)
    return found


def row(session, build, kind, ubatch, pass_mib, mode):
    length = session.setting("growth_depth", 60000)
    context = (length + 256) // 256 * 256
    model = session.model(MODEL[0], *session.setting("ik_model", MODEL[1:]))
    flags = ["-m", model, *BASE, "-c", str(context), "-ub", str(ubatch), "-ctk", kind, "-mla", str(mode), "-amb", str(pass_mib)]
    planned = session.plan(build, flags, specs=[session.own[0].spec(pool="vmm")])["cards"][0]
    terms = {name: value / MIB for name, value in planned["terms"].items() if isinstance(value, (int, float))}
    found = {"kv": kind, "ubatch": ubatch, "amb": pass_mib, "mla": mode, "tokens": length, "flags": flags[2:],
             "planned_mib": {"loaded": planned["loaded"] / MIB, "peak": planned["peak"] / MIB, "terms": terms}}
    memory = Memory(session.own[0].index)
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(build.server, flags, dict(os.environ), f"{folder}/log")
        try:
            if not engine.ready(240):
                raise OSError(f"the engine did not load: {engine.said('error', 'rror:', 'failed')}")
            found["buffers_mib"] = buffers(engine.log)
            found["loaded_mib"] = memory.of(engine.process.pid)
            prompt, found["at_mib"] = tokens(length, VOCABULARY), {}
            for end in [*range(STEP, length, STEP), length]:
                answer = engine.complete(prompt[:end], 4 if end == length else 1)
                found["at_mib"][str(end)] = memory.of(engine.process.pid)
            found["grown_mib"] = max(found["at_mib"].values())
            found["per_second"] = answer["timings"].get("prompt_per_second")
        except OSError as error:
            raise OSError(f"{error}; {engine.said('rror', 'abort', 'ABORT')}"[:1500]) from error
        finally:
            found["status"] = engine.stop()
    return found


def measure(session, build, until, keep):
    result = session.results.get("ik") or {"bound_percent": BOUND_PERCENT, "model": MODEL, "rows": []}
    result["rows"] = [row for row in result["rows"] if "failed" not in row]
    for arguments in ROWS:
        name = "{} ub {} amb {} mla {}".format(*arguments)
        if until.passed() or any(row["name"] == name for row in result["rows"]):
            continue
        session.say(name)
        try:
            found = row(session, build, *arguments)
        except (OSError, KeyError, ValueError) as error:
            found = {"failed": f"{type(error).__name__}: {error}"[:1500]}
        result["rows"].append({"name": name, **found})
        keep(result)
    result["complete"] = len([row for row in result["rows"] if "failed" not in row]) == len(ROWS)
    return result


def off(planned, measured):
    return 100 * (planned - measured) / measured if measured else 0


def table(result):
    """Each row by the whole process, by its growth, and by what its context and first graphs take, which no buffer of its log is."""
    lines = ["ik:"]
    for row in result["rows"]:
        if "failed" in row:
            lines.append(f"  ! {row['name']}: {row['failed']}"[:600])
            continue
        planned, loaded, grown = row["planned_mib"], row["loaded_mib"], row["grown_mib"]
        whole, growth, planned_growth = off(planned["peak"], grown), grown - loaded, planned["peak"] - planned["loaded"]
        in_log = sum(mib for name, mib in row["buffers_mib"].items() if re.match(r"CUDA\d", name))
        mark = "!" if abs(whole) > result["bound_percent"] else " "
        lines.append(f"  {mark} {row['name']}: {loaded} -> {grown} MiB at {row['tokens']} tokens; planned {planned['loaded']:.0f} -> {planned['peak']:.0f} "
                     f"({whole:+.1f} %); growth {growth}, planned {planned_growth:.0f} ({off(planned_growth, growth):+.1f} %, "
                     f"{100 * (planned_growth - growth) / grown if grown else 0:+.1f} % of all); beside buffers {loaded - in_log:.0f}, "
                     f"planned {planned['loaded'] - sum(planned['terms'].get(name, 0) for name in ('weights', 'kv', 'compute')):.0f}")
    return lines


def main():
    parser = alone(__doc__, "/tmp/plimsoll-gpu-ik", 300)
    options = parser.parse_args()
    if options.table:
        with open(f"{options.table}/results.json") as file:
            print("\n".join(table(json.load(file)["ik"])))
        return 0
    if not options.server or not options.out:
        parser.error("--server and --out are needed")
    session = Session.asked(options)
    build = Build("ik_llama.cpp", os.path.abspath(options.server))
    result = measure(session, build, Until(options.seconds), lambda so_far: session.keep("ik", so_far))
    session.keep("ik", result)
    print("\n".join(table(result)))
    return int(any("failed" in row for row in result["rows"]))


if __name__ == "__main__":
    sys.exit(main())
