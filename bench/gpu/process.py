"""The whole process by nvidia-smi against `plan`: after load and after a prompt of 30 000 tokens, with llama-fit-params beside it.

No row is tuned: the models are shapes of `specimen` with no weights behind them, planned by the formulas and the calibrated
context alone. One process runs on each card at a time, so that a card's own count stands in where the driver does not count by process. The bound
is 1.5 % or 48 MiB, whichever is larger.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import buffers
from gpu import Engine, Memory, tokens

MIB = 1 << 20
VOCABULARY = 30000  # of every model here, at least
MODELS = ("l8", "m8", "qwen3-4b", "oss", "q30", "llama-1b", "qwen2-7b", "gemma3-4b", "phi3-mini", "granite-h-tiny", "mamba2", "command-r")
FLAGS = ("-c 32768 -fa on", "-c 32768 -fa on -ctk q8_0 -ctv q8_0", "-c 32768 -fa on -ub 2048 -b 2048 -np 1")
BOUND, LEAST_MIB = 0.015, 48


def configurations():
    return [{"model": model, "args": args} for args in FLAGS for model in MODELS]


def peer(session, build, flags, visible):
    """What `llama-fit-params` says that the same flags take of the card."""
    if not build.has("llama-fit-params"):
        return None
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": visible, "LD_LIBRARY_PATH": build.folder}
    command = [build.program("llama-fit-params"), *flags, "-dev", "CUDA0", "--fit-print", "on"]
    lines, whole, _ = buffers.until_it_said(command, environment, None, 60, f"{session.logs}/peer-{visible}.log")
    return round(sum(buffers.sums(lines).get("CUDA0", {}).values())) if whole else None


def run(session, build, row, card):
    flags = ["-m", session.model(row["model"]), *row["args"].split(), "-ngl", "99", "-fit", "off"]
    plan = session.plan(build, flags)
    here = plan["cards"][0]
    result = {**row, "planned_mib": {"loaded": here["loaded"] // MIB, "peak": here["peak"] // MIB}, "peer_mib": peer(session, build, flags, str(card))}
    if os.path.exists(f"{session.calibrated(build)}/plimsoll/contexts.toml"):
        here = session.plan(build, flags, extra={"XDG_CONFIG_HOME": session.calibrated(build)})["cards"][0]
        result["calibrated_mib"] = {"loaded": here["loaded"] // MIB, "peak": here["peak"] // MIB}
    memory = Memory(card)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(card)}
    engine = Engine(build.server, [*flags, "--cache-ram", "0"], environment, f"{session.logs}/process-{card}.log")
    try:
        if not engine.ready(session.setting("row_seconds", 150)):
            return {**result, "failed": engine.said("error", "failed", "out of memory")}
        result["loaded_mib"] = memory.of(engine.process.pid)
        depth = session.setting("process_depth", 30000)
        engine.complete(tokens(depth, VOCABULARY), 4, cache_prompt=False)
        result.update(depth=depth, deep_mib=memory.of(engine.process.pid))
    except OSError as error:
        result["failed"] = [str(error), *engine.said("error", "failed", "out of memory")]
    finally:
        engine.stop()
    return result


def measure(session, build, until, keep):
    result = session.results.get("process") or {"build": build.number, "rows": []}
    done = {(row["model"], row["args"]) for row in result["rows"] if "failed" not in row}
    result["rows"] = [row for row in result["rows"] if "failed" not in row]
    wanted = configurations()[:session.setting("process_rows", len(configurations()))]
    idle, lock = Queue(), threading.Lock()
    for card in session.own:
        idle.put(card.index)

    def one(row):
        if until.passed() or not session.claim(f"{row['model']} {row['args']}"):
            return
        card = idle.get()
        try:
            found = run(session, build, row, card)
        except Exception as error:  # one bad row must not cost the others
            found = {**row, "failed": [f"{type(error).__name__}: {error}"[:600]]}
        finally:
            idle.put(card)
        with lock:
            result["rows"].append(found)
            keep(result)

    with ThreadPoolExecutor(len(session.own)) as pool:
        list(pool.map(one, [row for row in wanted if (row["model"], row["args"]) not in done]))
    asked = {(row["model"], row["args"]) for row in result["rows"] if "failed" not in row}
    result["complete"] = all((row["model"], row["args"]) in asked for row in wanted)
    return result


def off(row, planned, measured, by="planned_mib"):
    return row[by][planned] - row[measured]


def within(row, by="planned_mib"):
    """After load and deep, both."""
    pairs = (("loaded", "loaded_mib"), ("peak", "deep_mib"))
    return all(abs(off(row, planned, measured, by)) <= max(LEAST_MIB, BOUND * row[measured]) for planned, measured in pairs)


def table(part, result):
    rows = [row for row in result["rows"] if "deep_mib" in row]
    calibrated = [row for row in rows if "calibrated_mib" in row]
    lines = [f"{part}: {sum(map(within, rows))} of {len(rows)} processes within 1.5 % or 48 MiB, after load and after {rows[0]['depth'] if rows else 0} tokens; "
             f"with what `calibrate` measured {sum(within(row, 'calibrated_mib') for row in calibrated)} of {len(calibrated)}; "
             f"{sum('failed' in row for row in result['rows'])} failed"]
    for row in rows:
        mark = " " if within(row) else "!"
        lines.append(f" {mark} {row['model']:15} {row['args']:38} loaded {row['loaded_mib']:6} {off(row, 'loaded', 'loaded_mib'):+5}  "
                     f"deep {row['deep_mib']:6} {off(row, 'peak', 'deep_mib'):+5}  llama-fit-params {row['peer_mib'] or 0:6} "
                     f"{(row['peer_mib'] or 0) - row['loaded_mib']:+6}")
    return lines
