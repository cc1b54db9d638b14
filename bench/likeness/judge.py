"""Scores a folder of labelled reports with a `plimsoll` binary.

usage: judge.py BINARY FOLDER [--misses]
FOLDER holds reports as JSON, one a file, with `log`, `context`, `platform`, `cause` and `confirmed`. Each report is given to `BINARY doctor --json - --context
CONTEXT --context PLATFORM` with its log on stdin, as `crates/doctor/tests/corpus.rs` feeds its reader. Two binaries are compared by two runs on the same folder:

    judge.py old/plimsoll FOLDER; judge.py new/plimsoll FOLDER

Printed: how many are right, of all and of the confirmed ones, with the macro average over causes; and of those at confidence 0.8 or more how many are right.
With --misses the reports that are wrong, without their texts.
"""

import argparse
import collections
import glob
import json
import subprocess

SURE = 0.8
# `host_oom` is newer than the labels, which file it under another cause with one of these sublabels.
OF_HOST = ("host_oom_killer", "host_ram")


def words_of(value):
    return value if isinstance(value, str) else json.dumps(value) if value else ""


def judged(binary, report):
    """The cause and the confidence that the binary gives."""
    command = [binary, "doctor", "--json"]
    for field in ("context", "platform"):
        # An argument has no NUL bytes, and a bare dash would be read as an option's value all the same.
        command += ["--context", words_of(report.get(field)).replace("\0", "")]
    answer = subprocess.run([*command, "-"], input=words_of(report.get("log")).encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    # 0: a cause is named; 3: none is.
    if answer.returncode not in (0, 3):
        raise SystemExit(f"{binary} ended with {answer.returncode}: {answer.stderr.decode(errors='replace')}")
    verdict = json.loads(answer.stdout)
    verdict = verdict.get("diagnosis", verdict)
    return verdict["cause"], verdict["confidence"]


def share(rows):
    right = sum(row["right"] for row in rows)
    return f"{right} of {len(rows)}" + (f" ({right / len(rows):.3f})" if rows else "")


def macro(rows):
    causes = collections.defaultdict(list)
    for row in rows:
        causes[row["cause"]].append(row["right"])
    return sum(sum(right) / len(right) for right in causes.values()) / max(len(causes), 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("folder")
    parser.add_argument("--misses", action="store_true")
    options = parser.parse_args()
    rows = []
    for path in sorted(glob.glob(f"{options.folder}/*.json")):
        with open(path) as file:
            report = json.load(file)
        if not isinstance(report, dict) or "cause" not in report:
            continue
        found, confidence = judged(options.binary, report)
        rows.append({"path": path, "cause": report["cause"], "confirmed": report.get("confirmed") is True, "found": found, "confidence": confidence,
                     "right": found == report["cause"] or found == "host_oom" and report.get("sublabel") in OF_HOST})
    for name, some in (("all", rows), ("confirmed", [row for row in rows if row["confirmed"]])):
        sure = [row for row in some if row["confidence"] >= SURE]
        print(f"{name}: right {share(some)}, macro average {macro(some):.3f}; at confidence {SURE} or more right {share(sure)}")
    for row in rows:
        if options.misses and not row["right"]:
            print(f"miss {row['path'].rsplit('/', 1)[-1]}: {row['cause']}, called {row['found']} ({row['confidence']:.2f})")


if __name__ == "__main__":
    main()
