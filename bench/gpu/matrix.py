"""What a real CUDA engine says of its buffers, in every configuration that `data/exact` has of the phantom backend, beside `plan`.

A row is a configuration: the engine is started on the card as a user would start it, and killed once its buffers are known. The same engine is
then run under the phantom backend, as `plan --exact` runs it (`exact`), and the same flags are planned by the formulas (`default`). What fits on no card is asked of
`llama-fit-params`, which allocates nothing. The models are holes behind a header: what a buffer takes does not depend on weights.

Rows on two cards come first and run alone, because an engine divides its layers by what is free: in lanes the first has them, and waits until
the cards are as empty as they were found. Rows on one card run side by side, as many as the card has room for by the plan. Rows that
are done are kept, so a second command goes on where the first was cut off.
"""

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import buffers
from gpu import taken
from session import HERE, ROOT, first_present

MIB = 1 << 20
# What a process takes besides its plan, and the room that is always left.
SLACK_MIB = 2048
FIELDS = ("model", "draft", "projector", "program", "cards", "args")
# An older engine refuses what it does not know; a draft is another flag there.
OLDER_MODELS = ("l8", "llama-1b", "qwen2-7b", "qwen3-4b", "gemma3-4b", "gemma3n-e2b", "phi3-mini", "oss", "q30", "granite-h-tiny", "mamba2", "nomic-embed")


def configurations(build):
    """The recorded rows without what was said; for an older build those of the smaller models, on their own."""
    with open(first_present(f"{ROOT}/data/exact/b10605.json", f"{HERE}/rows.json")) as file:
        rows = [{field: row[field] for field in FIELDS if row.get(field)} for row in json.load(file)["rows"]]
    if build.number >= 10605:
        return rows
    simple = [row for row in rows if row["program"] == "llama-server" and not row.get("draft")]
    return sorted((row for row in simple if row["model"] in OLDER_MODELS), key=lambda row: OLDER_MODELS.index(row["model"]))


def key(row):
    return json.dumps([row.get(field) for field in FIELDS])


def flags(session, row):
    named = ["-m", session.model(row["model"])]
    for field, flag in (("draft", "-md"), ("projector", "--mmproj")):
        if row.get(field):
            named += [flag, session.model(row[field])]
    return [*named, *row["args"].split()]


class Room:
    """MiB that are free on each card; who needs more than there is waits, and whoever asks for all cards has them alone."""

    def __init__(self, cards):
        self.indices = [card.index for card in cards]
        self.total = [card.total_mib - SLACK_MIB for card in cards]
        self.free = list(self.total)
        self.changed = threading.Condition()

    def take(self, mib):
        """A card with so much free, and the amount that is taken of it."""
        with self.changed:
            self.changed.wait_for(lambda: max(self.free) >= mib)
            card = self.free.index(max(self.free))
            self.free[card] -= mib
            return self.indices[card]

    def give(self, index, mib):
        with self.changed:
            self.free[self.indices.index(index)] += mib
            self.changed.notify_all()

    def fits(self, mib):
        return mib <= max(self.total)


def phantom(session, build, cards):
    """The environment in which the phantom backend stands for so many cards, as `plimsoll plan --exact` sets it."""
    specs = ";".join(f"total={card.total_mib << 20},free={card.total_mib - 632 << 20},cc={card.compute}" for card in session.cards_for(cards))
    return {"LD_PRELOAD": session.phantom, "PLIMSOLL_PHANTOM_CARDS": specs}


def ask(session, build, row, program, environment):
    """The engine's own lines."""
    command = [build.program(program), *flags(session, row), "-fit", "off"]
    if "-dev" not in row["args"].split():
        command += ["-dev", ",".join(f"CUDA{index}" for index in range(row["cards"]))]
    end = None
    place = f"{session.logs}/{threading.get_ident()}"
    if os.path.exists(f"{place}.sock"):  # an engine that was killed leaves it behind, and the next could not bind
        os.unlink(f"{place}.sock")
    if program == "llama-fit-params":
        command += ["--fit-print", "on"]
    else:
        several = row.get("draft") or row.get("projector") or "--spec-type" in row["args"]
        end = buffers.READY if several else buffers.CONTEXT
        command += ["-lv", "4", "--host", f"{place}.sock", *([] if row.get("projector") else ["--no-warmup"])]
    libraries = ":".join(filter(None, [build.folder, os.environ.get("LD_LIBRARY_PATH")]))
    start = time.monotonic()
    lines, whole, last = buffers.until_it_said(command, {**os.environ, "LD_LIBRARY_PATH": libraries, **environment}, end,
                                               session.setting("row_seconds", 120), f"{place}.log")
    found = {"log": lines, "seconds": round(time.monotonic() - start, 2)}
    return found if whole else {**found, "failed": last}


def beside(session, build, row, program, said):
    """What the phantom backend and the formulas say of the row, less what the card said."""
    there = ask(session, build, row, program, phantom(session, build, row["cards"]))
    if "failed" in there:
        exact = {"refused": there["failed"], "seconds": there["seconds"]}
    else:
        exact = {"off_mib": buffers.differences(said, buffers.sums(there["log"]), row["cards"]), "seconds": there["seconds"]}
    try:
        plan = session.plan(build, flags(session, row), row["cards"], program)
    except OSError as error:
        return {"exact": exact, "default": {"refused": str(error)}}
    off = buffers.differences(said, buffers.planned(plan), row["cards"])
    if row.get("projector"):
        # No engine says what a projector's weights take; `plan` adds them from the file's header.
        off = {term: mib for term, mib in off.items() if not term.endswith("weights")}
    asks = any("plimsoll plan --exact" in reason["text"] for reason in plan["reasons"])
    return {"exact": exact, "default": {"off_mib": off, **({"asks": True} if asks else {})}}


def where(session, build, row, room):
    """The program that can be asked on these cards, and the MiB that it takes of one; None where there is none."""
    try:
        peak = sum(card["peak"] for card in session.plan(build, flags(session, row), row["cards"], row["program"])["cards"]) // MIB
    except OSError:
        peak = 8192
    if row["program"] == "llama-server" and room.fits(peak if row["cards"] == 1 else peak // row["cards"]):
        return "llama-server", peak
    # It allocates nothing, and knows neither slots of their own nor a second model.
    simple = "kv-unified" not in row["args"] and not row.get("draft") and not row.get("projector")
    return ("llama-fit-params", 1024) if simple and build.has("llama-fit-params") else (None, peak)


def measured(session, build, row, room):
    """One row: where it runs, what was said, what was planned."""
    program, needs = where(session, build, row, room)
    if program is None:
        return {**row, "skipped": f"needs {needs} MiB, and {build.name} has nobody to ask instead"}
    result = {**row, "program": program, **({"instead_of": row["program"]} if program != row["program"] else {})}
    if row["cards"] > 1:
        result.update(ask(session, build, row, program, {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(row["cards"])))}))
    else:
        card = room.take(needs)
        try:
            result.update(ask(session, build, row, program, {"CUDA_VISIBLE_DEVICES": str(card)}))
        finally:
            room.give(card, needs)
    result["said_mib"] = buffers.sums(result["log"])
    if "failed" not in result:
        result.update(beside(session, build, row, program, result["said_mib"]))
    return result


def emptied(before, seconds=20):
    """Waits until no card has more in use than it had: who was killed gives back a moment later."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(now > then + 16 for now, then in zip(taken(), before)):
        time.sleep(0.2)


def measure(session, build, until, keep):
    """Rows that are still open; `keep` is told after each."""
    part = f"matrix-{build.name}"
    result = session.results.get(part) or {"build": build.number, "rows": []}
    done = {row["of"] for row in result["rows"] if "failed" not in row}
    result["rows"] = [row for row in result["rows"] if row["of"] in done]
    # In lanes the cards are never empty again once the newest build's rows on several are done.
    several = session.first_lane and (build.number >= 10605 or not session.lane)
    wanted = [row for row in configurations(build) if row["cards"] == 1 or several and row["cards"] <= len(session.cards)]
    limit = session.setting("rows", len(wanted))
    still = [row for row in wanted[:limit] if key(row) not in done]
    room, lock, empty = Room(session.own), threading.Lock(), taken()

    def one(row):
        if until.passed():
            return
        try:
            found = measured(session, build, row, room)
        except Exception as error:  # one bad row must not cost the others
            found = {**row, "failed": [f"{type(error).__name__}: {error}"[:600]]}
        with lock:
            result["rows"].append({"of": key(row), **found})
            keep(result)

    for row in (row for row in still if row["cards"] > 1):
        emptied(empty)
        one(row)
    session.release()
    workers = session.setting("workers", 5)
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, [row for row in still if row["cards"] == 1]))
    asked = {row["of"] for row in result["rows"] if "failed" not in row}
    result["complete"] = all(key(row) in asked for row in wanted[:limit])
    return result


# --- the table ---

BOUNDS = {"dense": "1 MiB", "routed": "16 MiB", "hybrid": "2 %"}
ROUTED = {"q30", "oss", "kimi-k2", "glm4-air"}
HYBRID = {"qwen3-next", "mamba2", "granite-h-tiny"}


def bound(row):
    if row["model"] in HYBRID:
        whole = sum(terms.get(term, 0) for place, terms in row["said_mib"].items() if place != "host" for term in ("weights", "kv", "compute"))
        return max(1.0, whole / 50)
    return 16.0 if row["model"] in ROUTED else 1.0


def worst(off):
    known = [mib for mib in off.values() if mib is not None]
    return max(known, key=abs, default=0.0)


def table(part, result):
    """Counts and the worst difference, and each row that misses its bound."""
    rows = [row for row in result["rows"] if "exact" in row]
    models = {row["model"] for row in rows}
    lines = [f"{part}: {len(rows)} configurations of {len(models)} models, {sum(row['cards'] > 1 for row in rows)} on two cards, "
             f"{sum('draft' in row for row in rows)} with a draft, {sum('projector' in row for row in rows)} with a projector; "
             f"{sum('skipped' in row for row in result['rows'])} skipped, {sum('failed' in row for row in result['rows'])} failed"]
    for level, room in (("exact", lambda row: 1.0 if row["program"] == "llama-fit-params" else 0.05), ("default", bound)):
        planned = [row for row in rows if "off_mib" in row[level] and not row[level].get("asks")]
        misses = [row for row in planned if abs(worst({k: v for k, v in row[level]["off_mib"].items() if level == "exact" or not k.startswith("host")})) > room(row)]
        lines.append(f"  {level}: {len(planned) - len(misses)} of {len(planned)} within its bound, {len(rows) - len(planned)} refused or left to --exact")
        for row in misses[:12]:
            off = {term: mib for term, mib in row[level]["off_mib"].items() if mib}
            lines.append(f"    {row['model']} {row.get('draft', '')} {row['program']} {row['cards']} card(s) {row['args']}: {off}")
    return lines


def golden(result, engine, card, date):
    """In the format of `data/exact`, for `data/measured`: the same tests read both."""
    rows = [{**{field: row[field] for field in FIELDS if row.get(field)}, "log": row["log"]} for row in result["rows"] if "exact" in row]
    return {"what": "what llama.cpp said of its buffers on a real card: the lines of its log, without the clock; MiB", "build": result["build"],
            "engine": engine, "date": date, "card": card, "command": "bench/gpu/run.py, part matrix; models by `specimen`", "rows": rows}
