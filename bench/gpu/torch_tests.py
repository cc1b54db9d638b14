"""Runs PyTorch's own tests of its allocator bare and guarded and compares test by test.

usage: torch_tests.py --tests test_cuda.py --guard LIBRARY [--words OPTIONS] [--pattern WORD]...
The test file is PyTorch's, of any release near the installed one: what it imports and this release lacks is stood in for, so
that a test that needs it fails alike in both runs. Prints one JSON object with the counts and every difference.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

from gpu import Until, guarded

STAND_IN = """
import importlib, re, sys
sys.argv = [sys.argv[1], *sys.argv[2:]]
text = open(sys.argv[0]).read()
for module, names in re.findall(r'^from (torch[\\w.]*) import (\\([^)]*\\)|.*)$', text, re.M):
    try:
        found = importlib.import_module(module)
    except ImportError:
        continue
    for name in re.findall(r'(?:^|[(,\\s])(\\w+)(?:\\s+as\\s+\\w+)?\\s*(?=[,)\\n]|$)', names):
        if not hasattr(found, name):
            setattr(found, name, False if name.isupper() else lambda *a, **k: (a[0] if a and callable(a[0]) else (lambda f: f)))
__file__ = sys.argv[0]
exec(compile(text, sys.argv[0], 'exec'), globals())
"""


def outcomes(said):
    """What came of each test; guard's own lines may stand between a test's name and its outcome."""
    found, test = {}, None
    for line in said.splitlines():
        name = re.match(r"(test_\w+ \([\w.]+\))", line)
        test = name.group(1) if name else test
        outcome = re.search(r"(?:^|\.\.\. |\s)(ok|FAIL|ERROR|expected failure|skipped .*)$", line)
        if test and outcome and not line.startswith(("FAIL:", "ERROR:")):
            found.setdefault(test, outcome.group(1).split()[0])
    return found


def run(options, words, pattern, seconds):
    """One pattern in one process, so that a test that takes the process with it costs only those beside it."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as shim:
        shim.write(STAND_IN)
    environment = {**guarded(words, options.guard), "PYTORCH_TEST_WITH_SLOW": "0", "CI": ""}
    try:
        done = subprocess.run([sys.executable, shim.name, options.tests, "-v", "-k", pattern], env=environment,
                              capture_output=True, text=True, timeout=seconds)
        said, status = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        said, status = ((late.stdout or b"") + (late.stderr or b"")).decode(errors="replace"), "late"
    os.unlink(shim.name)
    found = outcomes(said)
    return {"status": status, "outcomes": found, **({} if found else {"said": said[-1500:]})}


WORDS = "budget=141733920768 pool=ours reuse"


def measure(options, until):
    """Each pattern bare and guarded; one that is late says so, and none begins after time is up."""
    runs = {kind: {"outcomes": {}, "status": {}} for kind in ("bare", "guarded")}
    for pattern in options.pattern:
        if until.passed():
            break
        for kind, words in (("bare", None), ("guarded", options.words)):
            row = run(options, words, pattern, min(options.seconds, until.left() + 20))
            runs[kind]["outcomes"].update(row["outcomes"])
            runs[kind]["status"][pattern] = row["status"] if row["outcomes"] else [row["status"], row["said"]]
    bare, under = runs["bare"]["outcomes"], runs["guarded"]["outcomes"]
    return {
        "words": options.words,
        "status": {kind: runs[kind]["status"] for kind in runs},
        "bare": {outcome: list(bare.values()).count(outcome) for outcome in sorted(set(bare.values()))},
        "guarded": {outcome: list(under.values()).count(outcome) for outcome in sorted(set(under.values()))},
        "differences": {test: [bare.get(test), under.get(test)] for test in sorted({*bare, *under}) if bare.get(test) != under.get(test)},
        "not_ok_bare": {test: outcome for test, outcome in bare.items() if outcome in ("FAIL", "ERROR")},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", required=True)
    parser.add_argument("--guard", required=True)
    parser.add_argument("--words", default=WORDS)
    parser.add_argument("--seconds", type=int, default=150, help="for one pattern in one process")
    parser.add_argument("--pattern", action="append", default=[])
    options = parser.parse_args()
    print(json.dumps(measure(options, Until(3600)), indent=1))


if __name__ == "__main__":
    main()
