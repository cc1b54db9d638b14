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

from gpu import guarded

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


def run(options, words):
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as shim:
        shim.write(STAND_IN)
    arguments = [sys.executable, shim.name, options.tests, "-v"]
    for pattern in options.pattern:
        arguments += ["-k", pattern]
    environment = {**guarded(words, options.guard), "PYTORCH_TEST_WITH_SLOW": "0", "CI": ""}
    try:
        done = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=options.seconds)
        said, status = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        said, status = ((late.stdout or b"") + (late.stderr or b"")).decode(errors="replace"), "late"
    os.unlink(shim.name)
    outcomes = dict(re.findall(r"^(test_\w+ \([\w.]+\))(?:\n.*?)? \.\.\. (?:.*?)(ok|FAIL|ERROR|skipped|expected failure)", said, re.M))
    return {"status": status, "outcomes": outcomes, "end": said[-600:]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", required=True)
    parser.add_argument("--guard", required=True)
    parser.add_argument("--words", default="budget=141733920768 pool=ours reuse")
    parser.add_argument("--seconds", type=int, default=150)
    parser.add_argument("--pattern", action="append", default=[])
    options = parser.parse_args()
    bare, under = run(options, None), run(options, options.words)
    count = lambda row: {kind: list(row["outcomes"].values()).count(kind) for kind in sorted(set(row["outcomes"].values()))}
    tests = sorted(set(bare["outcomes"]) | set(under["outcomes"]))
    result = {
        "words": options.words, "bare": count(bare), "guarded": count(under),
        "differences": {test: [bare["outcomes"].get(test), under["outcomes"].get(test)] for test in tests
                        if bare["outcomes"].get(test) != under["outcomes"].get(test)},
        "failed_bare": [test for test, outcome in bare["outcomes"].items() if outcome in ("FAIL", "ERROR")],
        "status": [bare["status"], under["status"]],
        "end": [bare["end"], under["end"]],
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
