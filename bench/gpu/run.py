"""`gpu run`: all that is still to be measured on a card, on a machine without network, in commands of less than ten minutes.

usage: run.py --out FOLDER [--seconds 520] [--have FOLDER]... [--parts matrix-b10605,process,...] [--work FOLDER]
       run.py --table FOLDER            prints the table of results that are there
       run.py --golden FOLDER --engine TEXT --card SPEC --date DATE   writes FOLDER/h200-matrix-BUILD.json for data/measured
       run.py --lane 0 ... & run.py --lane 1 --parts ... & wait      two cards, each with a command of its own: the first builds the engines
It lies in a bundle of `cargo xtask gpu bundle`; README.md beside it has the commands. Needs python3 alone; a part that needs
PyTorch or a C compiler says so where they are not there. Parts run in the order of their worth, each within its share of the time and as soon as its engine
is there; what is done is not done again. No setting of the card is touched.
"""

import argparse
import glob
import json
import os
import sys
import time
from dataclasses import dataclass
from typing import Callable

import admission
import calibrate
import causes
import growth
import issue3
import matrix
import process
from engines import Engines
from gpu import Until
from session import ROOT, Session, verify

OLD, NEW = 8799, 10605


@dataclass(frozen=True)
class Part:
    name: str
    build: int | None  # whose engine it needs, if any
    seconds: int
    measure: Callable
    table: Callable

    def ready(self, session, engines):
        return self.build is None or self.build in engines.builds and session.released()


def part(name, build, seconds, module):
    return Part(name, build, seconds, module.measure, module.table)


PARTS = [
    part(f"matrix-b{NEW}", NEW, 330, matrix),
    part("causes-torch", None, 90, causes),
    part("causes", OLD, 120, causes),
    part(f"calibrate-b{NEW}", NEW, 30, calibrate),
    part("process", NEW, 240, process),
    part("growth", OLD, 150, growth),
    part("admission", OLD, 90, admission),
    part(f"calibrate-b{OLD}", OLD, 30, calibrate),
    part(f"matrix-b{OLD}", OLD, 150, matrix),
    *(Part(name, OLD, seconds, issue3.part(name), issue3.table) for name, seconds in (("spill", 150), ("bench", 180), ("bench-8b", 240), ("prefill", 120))),
    *(Part(f"{name}-b{NEW}", NEW, seconds, issue3.part(name), issue3.table) for name, seconds in (("spill", 150), ("bench-8b", 240))),
]
# Needs PyTorch's test_cuda.py: `--smaller '{"torch_tests": FILE}'`.
EXTRA = [Part("torch", None, 300, issue3.part("torch"), issue3.table)]


# The part whose rows on all cards come before other lanes begin.
LAST_ON_ALL = f"matrix-b{NEW}"


def run_part(session, build, each, left):
    seconds = min(session.setting("part_seconds", each.seconds), left)
    session.say(f"{each.name}{f' with {build.name}' if build else ''}, {seconds:.0f} s")
    try:
        result = each.measure(session, build, Until(seconds), lambda so_far: session.keep(each.name, so_far))
    except Exception as error:  # what fails must not take the other parts with it
        result = {**session.results.get(each.name, {}), "failed": f"{type(error).__name__}: {error}"[:600]}
        session.say(f"{each.name} failed: {error!r}"[:1000])
    finally:
        if each.name == LAST_ON_ALL:
            session.release()
    session.keep(each.name, result)
    session.say(f"{each.name} is {'whole' if result.get('complete') else 'begun'}")
    return "failed" not in result


def run(session, engines, parts, seconds):
    """Every part that is open, as soon as its engine is there; those that are cut off are gone on with while there is time."""
    end = time.monotonic() + seconds
    still, failed = [each for each in parts if not session.done(each.name)], 0
    if session.first_lane and LAST_ON_ALL not in (each.name for each in still):
        session.release()
    while still and time.monotonic() < end - 10:
        ready = [each for each in still if each.ready(session, engines)]
        if not ready and not engines.waiting() and session.released():
            break
        if not ready:
            time.sleep(0.5)
            continue
        still.remove(ready[0])
        failed += not run_part(session, engines.builds.get(ready[0].build), ready[0], end - time.monotonic())
    for each in still:
        session.say(f"{each.name} is left for the next command")
    return failed


def table(results):
    lines = []
    for each in PARTS + EXTRA:
        result = results.get(each.name)
        if result is None:
            continue
        if "failed" in result:
            lines.append(f"{each.name}: failed: {result['failed']}"[:300])
        if result.get("rows") or ("rows" not in result and "failed" not in result):
            lines += each.table(each.name, result)
    return "\n".join(lines)


def loaded(folder):
    with open(f"{folder}/results.json") as file:
        return json.load(file)


def write_golden(options):
    results = loaded(options.golden)
    for name, result in results.items():
        if name.startswith("matrix-") and result.get("rows"):
            path = f"{options.golden}/{name.replace('matrix', 'h200-matrix')}.json"
            text = json.dumps(matrix.golden(result, options.engine, options.card, options.date), indent=1)
            with open(path, "w") as file:
                file.write(text + "\n")
            print(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out")
    parser.add_argument("--work", default="/tmp/plimsoll-gpu")
    parser.add_argument("--have", action="append", default=[])
    parser.add_argument("--seconds", type=float, default=520)
    parser.add_argument("--parts", default=",".join(each.name for each in PARTS))
    parser.add_argument("--engine-archive", action="append", default=[], help="beside those of the bundle")
    parser.add_argument("--lane", type=int, help="the one card that is this command's; all but the first wait for the first one's engines")
    parser.add_argument("--plimsoll")
    parser.add_argument("--libraries")
    parser.add_argument("--smaller", default="{}", help="for a rehearsal: JSON of settings that make the parts shorter")
    for name in ("table", "golden", "engine", "card", "date"):
        parser.add_argument(f"--{name}")
    options = parser.parse_args()
    if options.table:
        print(table(loaded(options.table)))
        return 0
    if options.golden:
        write_golden(options)
        return 0
    asked = options.parts.split(",")
    unknown = set(asked) - {each.name for each in PARTS + EXTRA}
    if unknown or not options.out:
        parser.error(f"unknown parts: {', '.join(unknown)}" if unknown else "--out is needed")
    if os.path.exists(f"{ROOT}/MANIFEST.json") and (wrong := verify(ROOT)):
        sys.exit("the bundle is damaged:\n" + "\n".join(wrong))
    session = Session(options.out, options.work, options.have, options.plimsoll, options.libraries, json.loads(options.smaller), options.lane)
    session.say(f"{len(session.own)} of {len(session.cards)} card(s): {', '.join(card.spec() for card in session.own)}")
    archives = [] if options.lane else [*sorted(glob.glob(f"{ROOT}/engines/*.tar*")), *options.engine_archive]
    needed = {each.build for each in PARTS + EXTRA if each.build and each.name in asked and not session.done(each.name)}
    # The first lane builds for all, since what the others need is not known to it.
    wanted = lambda source: options.lane == 0 or any(str(build) in source for build in needed)
    sources = [source for source in glob.glob(f"{ROOT}/source/b*.tar.xz") if wanted(source)]
    engines = Engines(session, archives, [] if options.lane else sources, needed if options.lane else ())
    failed = run(session, engines, [each for each in PARTS + EXTRA if each.name in asked], options.seconds)
    engines.stop(max(20, options.seconds - (time.monotonic() - session.start)))
    session.write()
    print(table(session.results))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
