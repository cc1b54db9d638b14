#!/usr/bin/env python3
"""Speed of llama-server whose weights and used positions of the cache change places as conversations grow and end.

usage: exchange.py [--seconds N] [--repeat N] [--ways WAY,...] [--conversations N] [--answers FOLDER] PLIMSOLL LLAMA_SERVER SPECIMEN OUT CASE...

For each case the engine runs bare, with the exchange, with a spill that keeps its placement (`--no-slots`: nobody knows the depth), and with
managed memory. Models have random weights, prompts are the same for each way, and answers and their probabilities are compared with bare's.
`conversations` has four slots, which grow in turn and end at random depths. OUT gets results (exchange.json) as they come, and a table; after
so many seconds no further measurement begins. `--answers` names the OUT of an earlier command, whose answers of bare are compared with.
"""

import argparse
import glob
import json
import os
import random
import re
import struct
import subprocess
import tempfile
import time

import noise
from bus import add_limits, conversations, share_read, table
from depth import COMMON, finish
from gpu import Engine, Until, median

PREDICTED = 64
SLOTS = 4
SHORTEST, LONGEST = 2000, 50000
# Offsets of guard's page (crates/wire/src/page.rs): safe points and reports; bytes that were moved, the longest pause and the time of all.
WAITS, MOVED = 3936, 4072

ALL = (1000, 8000, 20000, 30000)
SHORT = {"bare": ALL, "exchange": ALL, "static": (8000, 20000)}
Q30 = ("--experts", "24")

# Model and its changes, flags, budget, depths of each way.
CASES = {
    "f16": ("l8", (), "-c 65536 -np 1", "8GiB", {
        "bare": (*ALL, 60000), "exchange": (*ALL, 60000, 1000), "static": (*ALL,), "managed": (1000, 8000),
    }),
    "f16-6GiB": ("l8", (), "-c 65536 -np 1", "6GiB", {"bare": ALL, "exchange": (*ALL, 1000), "static": (1000, 8000)}),
    "q8_0": ("l8", (), "-c 65536 -np 1 -ctk q8_0 -ctv q8_0", "6500MiB", SHORT),
    "np4": ("l8", (), "-c 131072 -np 4 --no-kv-unified", "8GiB", SHORT),
    "windows": ("gemma3-4b", (), "-c 131072 -np 1", "3700MiB", SHORT),
    "hybrid": ("qwen35-9b", (), "-c 131072 -np 1", "6200MiB", SHORT),
    "experts": ("q30", Q30, "-c 65536 -np 1", "8600MiB", SHORT),
    "conversations": ("m8", (), f"-c {SLOTS * (LONGEST + 1200)} -np {SLOTS} --no-kv-unified", "2950MiB", {
        "bare": (), "exchange": (), "static": (),
    }),
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
    """Safe points, reports, MiB that were moved to the card, the longest pause and guard's time in milliseconds; None without guard."""
    parent = engine.process.pid
    for task in glob.glob(f"/proc/{parent}/task/*/children"):
        for pid in read(task).decode().split():
            variables = dict(line.split(b"=", 1) for line in read(f"/proc/{pid}/environ").split(b"\0") if b"=" in line)
            content = read(f"{variables.get(b'PLIMSOLL_GUARD_PAGES', b'').decode()}/{pid}.page")
            if not content:
                continue
            waits, reports = struct.unpack_from("<2I", content, WAITS)
            moved, longest, time = struct.unpack_from("<3Q", content, MOVED)
            return {"waits": waits, "reports": reports, "moved_mib": moved >> 20, "longest_pause_ms": round(longest / 1e6, 1),
                    "guard_ms": round(time / 1e6, 2)}
    return None


def prompt(salt, length):
    numbers = random.Random(salt)
    return [numbers.randrange(300, 20000) for _ in range(length)]


def probabilities(engine, words):
    """Logarithms of the likeliest tokens behind a prompt that the cache still holds: they differ if any byte of it does."""
    fields = {"response_fields": ["completion_probabilities"], "n_probs": 4}
    answer = engine.complete(words, 2, cache_prompt=True, **fields).get("completion_probabilities", [])
    return [[(of.get("id"), of.get("logprob")) for of in token.get("top_logprobs", [])] for token in answer]


def by_depth(engine, depths, answers, until, repeat):
    """Decode and prefill in tokens per second at each depth, each time, and whether answer and probabilities are bare's."""
    engine.complete(prompt(1, 600), 4, cache_prompt=False)  # kernels are loaded by the first prompt
    for turn, depth in enumerate(depths):
        decode, prefill, same = [], [], []
        # A long prompt takes seconds, and is measured once.
        for _ in range(1 if depth > 40000 else repeat):
            if until.passed():
                break
            answer = engine.complete(prompt(depth, depth), PREDICTED, cache_prompt=False)
            times, tokens = answer["timings"], answer["tokens"]
            decode.append(round(times["predicted_per_second"], 1))
            prefill.append(round(times["prompt_per_second"]))
            same.append(answers.setdefault(str(depth), tokens) == tokens)
        if until.passed():
            return
        likely = json.loads(json.dumps(probabilities(engine, prompt(depth, depth))))
        alike = answers.setdefault(f"{depth} likely", likely) == likely
        yield {"depth": depth, "again": depth in depths[:turn], "decode": decode, "prefill": prefill, "same": all(same), "same_likely": alike,
               "numbers": bool(likely) and all(number is not None for token in likely for _, number in token),
               "likely": likely[:1], **(page(engine) or {})}


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
            # Most conversations are short: each doubling of the length is as likely as another.
            slots[slot] = (made, 0, int(SHORTEST * (LONGEST / SHORTEST) ** numbers.random()))
        number, length, end = slots[slot]
        length = min(end, length + numbers.randrange(1000, 20000))
        yield slot, number, length
        slots[slot] = (number, length, end) if length < end else None


def streamed(engine, words, slot):
    """Answer, timings and the longest time between two tokens in milliseconds."""
    tokens, longest, last, times = [], 0.0, None, {}
    for event in engine.stream(words, PREDICTED, id_slot=slot):
        now = time.monotonic()
        longest, last = max(longest, now - (last or now)), now
        tokens += event.get("tokens", [])
        times = event.get("timings", times)
    return tokens, times, longest * 1000


def by_conversation(engine, count, answers, until):
    """The speed over all turns, one at a time so that answers can be compared, how many answers differ from bare's, and the time after each."""
    begun, processed, predicted, milliseconds, differ, gaps, after = time.monotonic(), 0, 0, 0.0, [], [], []
    words = {}
    for number, (slot, conversation, length) in enumerate(turns(count)):
        if until.passed():
            break
        whole = words.setdefault(conversation, prompt(conversation, LONGEST))
        tokens, times, longest = streamed(engine, whole[:length], slot)
        processed += times["prompt_n"]
        predicted += times["predicted_n"]
        milliseconds += times["prompt_ms"] + times["predicted_ms"]
        gaps.append(longest)
        after.append((processed + predicted, round(milliseconds)))
        if answers.setdefault(str(number), tokens) != tokens:
            differ.append(number)
    yield {"turns": len(after), "prompt_tokens": processed, "predicted": predicted, "tokens_per_second": round(1000 * (processed + predicted) / max(milliseconds, 1)),
           "seconds": round(time.monotonic() - begun, 1), "differ": differ, "longest_gap_ms": round(max(gaps, default=0), 1),
           "median_longest_gap_ms": round(median(gaps or [0]), 1), "after": after, **(page(engine) or {})}


def model(specimen, folder, name, changes):
    path = f"{folder}/{name}.gguf"
    if not os.path.exists(path):
        subprocess.run([specimen, name, path, *changes], check=True, capture_output=True)
        noise.fill(path)
    return path


def measured(engine, case, depths, answers, until, arguments):
    if case == "conversations":
        return by_conversation(engine, arguments.conversations, answers, until)
    return by_depth(engine, depths, answers, until, arguments.repeat)


def kept_answers(arguments, out, case):
    """Answers of bare, from this command or an earlier one."""
    for folder in (out, arguments.answers):
        if folder and (content := read(f"{folder}/{case}-answers.json")):
            return json.loads(content)
    return {}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--conversations", type=int, default=200)
    parser.add_argument("--ways")
    parser.add_argument("--answers")
    parser.add_argument("words", nargs="+")
    arguments = parser.parse_args()
    plimsoll, server, specimen, out, *cases = arguments.words
    folder, rows, until = tempfile.mkdtemp(), [], Until(arguments.seconds)
    os.makedirs(out, exist_ok=True)
    for case in cases:
        name, changes, flags, budget, ways = CASES[case]
        if until.passed():
            break
        path = model(specimen, folder, name, changes)
        share, streams = share_read(path), int(re.search(r"-np (\d+)", flags).group(1))
        answers = kept_answers(arguments, out, case)
        for way, depths in ways.items():
            if until.passed() or (arguments.ways and way not in arguments.ways.split(",")):
                continue
            own, more = before(plimsoll, way, budget)
            words = ["-m", path, *flags.split(), *COMMON, *more]
            begun, log = time.monotonic(), f"{out}/{case}-{way}.log"
            engine = Engine(server, words, dict(os.environ), log, own)
            row = {"case": case, "way": way, "results": []}
            try:
                if not engine.ready():
                    raise OSError("the engine did not start")
                row["started"] = round(time.monotonic() - begun, 1)
                for result in measured(engine, case, depths, answers, until, arguments):
                    row["results"].append(result)
            except (OSError, KeyError) as error:
                row["error"] = repr(error)[:300]
            if way == "bare":
                with open(f"{out}/{case}-answers.json", "w") as file:
                    json.dump(answers, file)
            add_limits(row, rows, log, share, streams)
            finish(engine, row, rows, f"{out}/exchange.json")
    lines = "\n".join([*table(rows), "", *conversations(rows)])
    print(lines)
    with open(f"{out}/table.md", "w") as file:
        file.write(lines + "\n")


if __name__ == "__main__":
    main()
