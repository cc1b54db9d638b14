#!/usr/bin/env python3
"""Speed of llama-server whose weights and used positions of the cache change places as conversations grow and end.

usage: exchange.py [--seconds N] [--conversations N] PLIMSOLL LLAMA_SERVER SPECIMEN OUT CASE...

For each case the engine runs bare, with a spill that keeps its placement (`--no-slots`: nobody knows the depth), with the exchange, and
with managed memory. Prompts and answers are the same for each. `conversations` has four slots, which grow in turn and end at random
depths. Results are written to OUT/exchange.json as they come; after so many seconds no further measurement begins.
"""

import argparse
import glob
import json
import os
import random
import struct
import subprocess
import tempfile
import time

from depth import COMMON, finish
from gpu import Engine, Until

PREDICTED = 64
SLOTS = 4
LONGEST = 50000
# Offsets of guard's page (crates/wire/src/page.rs): safe points and reports, bytes that were moved and the longest pause.
WAITS, MOVED = 3936, 4072

# Model, flags, budget, depths of each way.
CASES = {
    "f16": ("l8", "-c 65536 -np 1", "8GiB", {
        "bare": (1000, 8000, 20000, 30000, 60000),
        "exchange": (1000, 8000, 20000, 30000, 60000, 1000),
        "static": (1000, 8000, 20000, 30000),
        "managed": (1000, 8000),
    }),
    "f16-6GiB": ("l8", "-c 65536 -np 1", "6GiB", {"bare": (1000, 8000), "exchange": (1000, 8000, 1000), "static": (1000, 8000)}),
    "q8_0": ("l8", "-c 65536 -np 1 -ctk q8_0 -ctv q8_0", "6500MiB", {
        "bare": (8000, 20000, 30000), "exchange": (8000, 20000, 30000), "static": (8000, 20000),
    }),
    "np4": ("l8", "-c 65536 -np 4 --no-kv-unified", "8GiB", {"bare": (5000, 12000), "exchange": (5000, 12000), "static": (5000, 12000)}),
    "conversations": ("l8", f"-c {SLOTS * (LONGEST + 1200)} -np {SLOTS} --no-kv-unified", "14GiB", {"bare": (), "exchange": (), "static": ()}),
}


def before(plimsoll, way, budget):
    """What stands before the engine on the command line, and flags of its own."""
    run = [plimsoll, "run", "--card", f"0={budget}"]
    return {
        "bare": ([], []),
        "exchange": ([*run, "--spill", "32GiB", "--"], []),
        "static": ([*run, "--spill", "32GiB", "--"], ["--no-slots"]),
        "managed": ([*run, "--on-oom", "managed", "--"], []),
    }[way]


def read(path):
    """A file's bytes; none if it is gone."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def page(engine):
    """Safe points, reports, MiB that were moved to the card and the longest pause in milliseconds; None without guard."""
    parent = engine.process.pid
    for task in glob.glob(f"/proc/{parent}/task/*/children"):
        for pid in read(task).decode().split():
            variables = dict(line.split(b"=", 1) for line in read(f"/proc/{pid}/environ").split(b"\0") if b"=" in line)
            content = read(f"{variables.get(b'PLIMSOLL_GUARD_PAGES', b'').decode()}/{pid}.page")
            if not content:
                continue
            waits, reports = struct.unpack_from("<2I", content, WAITS)
            moved, longest = struct.unpack_from("<2Q", content, MOVED)
            return {"waits": waits, "reports": reports, "moved_mib": moved >> 20, "longest_pause_ms": round(longest / 1e6, 1)}
    return None


def prompt(salt, length):
    numbers = random.Random(salt)
    return [numbers.randrange(300, 20000) for _ in range(length)]


def by_depth(engine, depths, answers, until):
    """Decode and prefill in tokens per second at each depth, and whether the answer is bare's."""
    for depth in depths:
        if until.passed():
            return
        answer = engine.complete(prompt(depth, depth), PREDICTED, cache_prompt=False)
        times, tokens = answer["timings"], answer["tokens"]
        yield {"depth": depth, "decode": round(times["predicted_per_second"], 1), "prefill": round(times["prompt_per_second"]),
               "same": answers.setdefault(depth, tokens) == tokens, **(page(engine) or {})}


def turns(count):
    """The turns of so many conversations in four slots: the slot, the conversation, and the length of its prompt by then."""
    numbers, made, slots = random.Random(7), 0, [None] * SLOTS
    while True:
        slot = numbers.randrange(SLOTS)
        if slots[slot] is None:
            if made == count:
                if not any(slots):
                    return
                continue
            made += 1
            slots[slot] = (made, 0, numbers.randrange(2000, LONGEST))
        number, length, end = slots[slot]
        length = min(end, length + numbers.randrange(1000, 20000))
        yield slot, number, length
        slots[slot] = (number, length, end) if length < end else None


def by_conversation(engine, count, answers, until):
    """The speed over all turns, one at a time so that answers can be compared, and how many answers differ from bare's."""
    begun, processed, predicted, seconds, differ, done = time.monotonic(), 0, 0, 0.0, [], 0
    for number, (slot, conversation, length) in enumerate(turns(count)):
        if until.passed():
            break
        answer = engine.complete(prompt(conversation, length), PREDICTED, id_slot=slot)
        times, tokens = answer["timings"], answer["tokens"]
        processed += times["prompt_n"]
        predicted += times["predicted_n"]
        seconds += times["predicted_ms"] / 1000
        done += 1
        if answers.setdefault(number, tokens) != tokens:
            differ.append(number)
    wall = time.monotonic() - begun
    yield {"turns": done, "prompt_tokens": processed, "predicted": predicted, "decode": round(predicted / max(seconds, 0.001), 1),
           "tokens_per_second": round((processed + predicted) / wall), "seconds": round(wall, 1), "differ": differ, **(page(engine) or {})}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--conversations", type=int, default=12)
    parser.add_argument("words", nargs="+")
    arguments = parser.parse_args()
    plimsoll, server, specimen, out, *cases = arguments.words
    folder, rows, until = tempfile.mkdtemp(), [], Until(arguments.seconds)
    os.makedirs(out, exist_ok=True)
    for case in cases:
        model, flags, budget, ways = CASES[case]
        path, answers = f"{folder}/{model}.gguf", {}
        if not os.path.exists(path):
            subprocess.run([specimen, model, path], check=True, capture_output=True)
            subprocess.run(["sh", "-c", f"cat {path} >/dev/null"], check=True)
        for way, depths in ways.items():
            if until.passed():
                break
            own, more = before(plimsoll, way, budget)
            words = ["-m", path, *flags.split(), *COMMON, *more]
            begun = time.monotonic()
            engine = Engine(server, words, dict(os.environ), f"{out}/{case}-{way}.log", own)
            row = {"case": case, "way": way, "results": []}
            try:
                if not engine.ready():
                    raise OSError("the engine did not start")
                row["started"] = round(time.monotonic() - begun, 1)
                if case == "conversations":
                    row["results"].extend(by_conversation(engine, arguments.conversations, answers, until))
                else:
                    row["results"].extend(by_depth(engine, depths, answers, until))
            except OSError as error:
                row["error"] = str(error)[:300]
            finish(engine, row, rows, f"{out}/exchange.json")


main()
