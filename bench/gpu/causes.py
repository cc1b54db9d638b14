"""Every cause that `plimsoll doctor` names, provoked on the card, and what doctor says of the log that it left.

The logs are kept with the results: those that are named rightly become `data/logs/CAUSE.h200.log`, the others a rule.
"""

import json
import subprocess
import tempfile

import provoke

LOG_BYTES = 24 << 10


def diagnosed(session, folder, log, context):
    """What doctor says: the cause, how sure it is, and what else it may be."""
    with open(f"{folder}/doctor.log", "w") as file:
        file.write(log)
    words = [word for text in context for word in ("--context", text)]
    said = subprocess.run([session.plimsoll, "doctor", "--json", f"{folder}/doctor.log", *words], capture_output=True, text=True, env=session.environment())
    if not said.stdout.startswith("{"):
        return {"cause": None, "failed": said.stderr[-400:]}
    verdict = json.loads(said.stdout)
    return {"cause": verdict["cause"], "confidence": verdict["confidence"], "also": verdict.get("also", [])[:3]}


def shortened(log):
    """The beginning and the end of a log that is long."""
    return log if len(log) <= LOG_BYTES else log[: LOG_BYTES // 2] + "\n[...]\n" + log[-LOG_BYTES // 2:]


def measure(session, build, until, keep):
    """All that this engine can be brought to; without one, what PyTorch can."""
    name, acts = ("causes", provoke.ENGINE_ACTS) if build else ("causes-torch", provoke.TORCH_ACTS)
    result = session.results.get(name) or {"build": build and build.number, "rows": []}
    result["rows"] = [row for row in result["rows"] if "failed" not in row]
    for cause, act, flags in acts:
        if until.passed() or any(row["cause"] == cause for row in result["rows"]):
            continue
        session.say(f"  {cause}")
        with tempfile.TemporaryDirectory() as folder:
            try:
                left = act(session, build, folder, flags)
                row = {"cause": cause, **left, "doctor": diagnosed(session, folder, left["log"], left["context"])}
                row["log"] = shortened(row["log"])
            except provoke.Lacking as lacking:
                row = {"cause": cause, "skipped": str(lacking)}
            except Exception as error:  # one that cannot be provoked must not cost the others
                row = {"cause": cause, "failed": f"{type(error).__name__}: {error}"[:600]}
        result["rows"].append(row)
        keep(result)
    result["complete"] = {row["cause"] for row in result["rows"] if "failed" not in row} == {cause for cause, *_ in acts}
    return result


def right(row):
    return "doctor" in row and row["doctor"]["cause"] == row["cause"]


def table(part, result):
    lines = [f"{part}: {sum(map(right, result['rows']))} of {len(result['rows'])} named rightly"]
    for row in result["rows"]:
        told = row.get("doctor", {})
        what = f"{told.get('cause')} ({told.get('confidence', 0):.2f})" if told else row.get("skipped") or row.get("failed")
        lines.append(f"  {' ' if right(row) else '!'} {row['cause']:32} {what}"[:200])
    return lines
