"""What an engine says of its buffers: run until it has, and read.

The lines are kept as `data/exact` keeps them, so that what a card said and what the phantom backend said are the same kind of file
and the same tests read both. The grammar is that of crates/planner/src/exact/line.rs.
"""

import os
import re
import selectors
import signal
import subprocess
import time

CLOCK = re.compile(r"^\d[\d.]{2,} +(?=[IWEDT] )")
TELLING = re.compile(r" buffer size = |constructing llama_context$|llama_context: n_ctx +=|sched_reserve: graph:? nodes|CLIP using "
                     r"|Flash Attention .*set to disabled|retrying without pipeline|initializing(?: slots)?, n_slots|^(?:CUDA\d+|Host) \d+ \d+ \d+ *$")
BUFFER = re.compile(r"^(?:[IWEDT] +)?[\w:~]+: +(\S+) +(.+?) +buffer size = +([\d.]+) MiB")
ROW = re.compile(r"^(CUDA\d+|Host) (\d+) (\d+) (\d+) *$")
BEGINS = re.compile(r"constructing llama_context$|CLIP using ")
CONTEXT, READY = "sched_reserve: graph", ", n_slots"
KINDS = {"model": "weights", "LoRA": "weights", "KV": "kv", "RS": "kv", "output": "output"}


def until_it_said(command, environment, end, seconds, log):
    """Runs a program until a line holds `end` (or to its own end, for None), at most so long. Returns the telling lines, whether it came
    that far, and its last words. The whole process group is killed then."""
    telling, last, whole = [], [], False
    with open(log, "w") as copy:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, errors="replace", start_new_session=True)
        selector = selectors.DefaultSelector()
        selector.register(process.stdout, selectors.EVENT_READ)
        deadline, rest, whole = time.monotonic() + seconds, "", False
        try:
            while not whole and selector.select(max(0, deadline - time.monotonic())):
                block = os.read(process.stdout.fileno(), 1 << 16).decode(errors="replace")
                copy.write(block)
                if not block:
                    whole = end is None and process.wait(20) == 0
                    break
                *lines, rest = (rest + block).split("\n")
                for line in lines:
                    line = CLOCK.sub("", line.rstrip())
                    last = [*last[-7:], line[:300]] if line else last
                    if TELLING.search(line):
                        telling.append(line)
                    if end is not None and end in line:
                        whole = True
                        break
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            status = process.wait()
            process.stdout.close()
    return telling, whole, last if whole else [*last, f"status {status}" + (f" after {seconds} s" if time.monotonic() > deadline else "")]


def sums(lines):
    """MiB by place (`CUDA0`, `host`) and term, as `plimsoll plan` counts them. A context that reserves its compute buffers again has them once."""
    totals, again = {}, {}

    def add(place, term, mib):
        terms = totals.setdefault(place, {})
        terms[term] = terms.get(term, 0.0) + mib

    for line in lines:
        if BEGINS.search(line):
            again = {}
        row, buffer = ROW.match(line), BUFFER.match(line)
        if row:
            place = "host" if row[1] == "Host" else row[1]
            for term, mib in zip(("weights", "kv", "compute"), row.groups()[1:]):
                add(place, term, float(mib))
        elif buffer:
            place = buffer[1] if re.fullmatch(r"CUDA\d+", buffer[1]) else "host"
            kind, mib = buffer[2], float(buffer[3])
            term = KINDS.get(kind, "kv" if kind.endswith(" state") else "compute")
            if term == "compute":
                add(place, term, mib - again.get((buffer[1], kind), 0.0))
                again[buffer[1], kind] = mib
            else:
                # Logits on a card are part of what `plan` calls compute there.
                add(place, "compute" if term == "output" and place != "host" else term, mib)
    return totals


def planned(plan):
    """The same of `plimsoll plan --json`."""
    mib = 1 << 20
    totals = {f"CUDA{index}": {term: card["terms"][term] / mib if card["terms"][term] is not None else None for term in ("weights", "kv", "compute")}
              for index, card in enumerate(plan["cards"])}
    totals["host"] = {term: None if bytes is None else bytes / mib for term, bytes in plan["host"]["terms"].items()}
    return totals


def differences(said, plan, cards):
    """Planned less said, in MiB, by place and term; a term that is not known is None."""
    off = {}
    for place in [*(f"CUDA{index}" for index in range(cards)), "host"]:
        for term in ("weights", "kv", "compute", *(("output",) if place == "host" else ())):
            there, here = said.get(place, {}).get(term, 0.0), plan.get(place, {}).get(term, 0.0)
            off[f"{place} {term}"] = None if here is None else round(here - there, 2)
    return off
