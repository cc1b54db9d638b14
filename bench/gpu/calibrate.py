"""`plimsoll measure calibrate` on the card: what a context takes of this build and driver, and how long it takes to know it (under 10 s)."""

import json
import os
import subprocess
import tempfile
import time


def calibrated(session, build, more):
    """One run of it; where the driver does not count by process, `--alone` compares what is free."""
    folder = f"{session.calibrated(build)}/plimsoll"
    os.makedirs(folder, exist_ok=True)
    libraries = ":".join(filter(None, [build.folder, os.environ.get("LD_LIBRARY_PATH")]))
    with tempfile.TemporaryDirectory() as named:
        command = [session.plimsoll, "calibrate", "--json", *more, "--engine", build.numbered(named), "--write", f"{folder}/contexts.toml"]
        start = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**session.environment(), "LD_LIBRARY_PATH": libraries})
    result = {"build": build.number, "words": more, "seconds": round(time.monotonic() - start, 2), "status": done.returncode, "said": done.stderr[-2000:]}
    if done.stdout.startswith("{"):
        result["measured"] = json.loads(done.stdout)
    return {**result, "complete": done.returncode == 0}


def measure(session, build, until, keep):
    result = calibrated(session, build, [])
    return result if result["complete"] else {**calibrated(session, build, ["--alone"]), "first": result}


def table(part, result):
    what = json.dumps(result.get("measured", result["said"][-300:]))
    return [f"{part}: status {result['status']} after {result['seconds']} s: {what}"[:600]]
