"""How an old engine's run-time pool grows to 60 000 tokens, and the largest context that `plan --fit ctx` finds, tried on the card.

`depth`: both of ggml's pools (the legacy one by hiding virtual memory), against the plan's peak. `fit`: under a budget of guard's, the context
that fits by `plan` is loaded and filled; then one step of 256 tokens more, which must fail, at load or under its prompt.
"""

import argparse
import json
import subprocess
import tempfile

from gpu import Engine, guarded, page, tokens
from pool import HIDDEN, Server, VOCABULARY

MIB = 1 << 20
WAYS = {"legacy": HIDDEN, "vmm": None}
# Cache type, ubatch; what grows most comes first.
DEPTHS = [("legacy", "q8_0", 512), ("vmm", "q8_0", 512), ("legacy", "q4_0", 128), ("vmm", "q4_0", 128), ("legacy", "f16", 512), ("vmm", "f16", 512)]
BUDGETS = [("legacy", "q8_0", 4096), ("vmm", "q8_0", 3072), ("legacy", "f16", 4096), ("vmm", "q4_0", 2560)]
STEP = 256
BASE = "-ngl 99 -b 2048 -fa on -np 1 -fit off --cache-ram 0".split()


def depth(session, build, way, kind, ubatch):
    """One prompt grown to the depth, beside the plan of a context that holds it."""
    length = session.setting("growth_depth", 60000)
    context = (length + STEP) // STEP * STEP
    options = argparse.Namespace(guard=session.guard, model=session.model("m8"), flags=f"-c {context}")
    flags = ["-m", options.model, *BASE, "-c", str(context), "-ub", str(ubatch), "-ctk", kind, "-ctv", kind]
    here = session.plan(build, flags, specs=[session.cards[0].spec(pool=way)])["cards"][0]
    row = {"what": "depth", "way": way, "kv": kind, "ubatch": ubatch, "tokens": length,
           "planned_mib": {"loaded": here["loaded"] / MIB, "peak": here["peak"] / MIB, "pool": here["terms"]["pool"] / MIB}}
    with Server(options, build.server, kind, ubatch, WAYS[way]) as server:
        row["loaded_mib"] = server.memory()
        row["per_second"], _ = server.grow(tokens(length, VOCABULARY), 8192)
        row["grown_mib"] = server.memory()
    return row


def fitting(session, build, way, kind, budget_mib):
    """The context that `--fit ctx` answers for a program that guard holds to so much, and what would be one step more."""
    flags = ["-m", session.model("m8"), *BASE, "-ctk", kind, "-ctv", kind]
    spec = session.cards[0].spec(pool=way, budget=f"{budget_mib}MiB")
    said = subprocess.run([session.plimsoll, "plan", "--json", "--fit", "ctx", "--engine", f"llama.cpp@{build.number}", "--card", spec, "--", *flags],
                          capture_output=True, text=True, env=session.environment())
    if not said.stdout.startswith("{"):
        raise OSError(f"plimsoll plan --fit ctx: {said.stderr.strip()[-400:]}")
    answer = json.loads(said.stdout)["answers"][0]
    return answer["best"], answer.get("next")


def survives(session, build, way, kind, budget_mib, context):
    """Loads the context under the budget and fills it; how far it came."""
    words = " ".join(filter(None, [f"budget={budget_mib * MIB}", WAYS[way]]))
    flags = ["-m", session.model("m8"), *BASE, "-ctk", kind, "-ctv", kind, "-c", str(context), "-ub", "512"]
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(build.server, flags, guarded(words, session.guard, folder), f"{folder}/log")
        row = {"context": context, "loaded": engine.ready(), "filled": False}
        try:
            if row["loaded"]:
                engine.complete(tokens(min(context - 24, session.setting("fit_depth", 1 << 30)), VOCABULARY), 16, cache_prompt=False)
                row["filled"] = True
        except OSError as error:
            row["died"] = str(error)[:300]
        row["page"] = page(folder, engine.process.pid)
        row["status"] = engine.stop()
        row["said"] = engine.said("plimsoll guard", "out of memory", "failed to allocate")
        return row


def fit(session, build, way, kind, budget_mib):
    best, beyond = fitting(session, build, way, kind, budget_mib)
    row = {"what": "fit", "way": way, "kv": kind, "budget_mib": budget_mib, "best": best, "next": beyond}
    if best:
        row["at_best"] = survives(session, build, way, kind, budget_mib, best)
        row["one_step_more"] = survives(session, build, way, kind, budget_mib, best + STEP)
        # Where it does not fail: how far off the border is.
        for more in (1024, 4096, 16384) if row["one_step_more"]["filled"] else ():
            row["further"] = survives(session, build, way, kind, budget_mib, best + more)
            if not row["further"]["filled"]:
                break
    return row


def wanted():
    yield from ((f"depth {way} {kind}", depth, (way, kind, ubatch)) for way, kind, ubatch in DEPTHS[:2])
    yield from ((f"fit {way} {kind} {budget}", fit, (way, kind, budget)) for way, kind, budget in BUDGETS[:2])
    yield from ((f"depth {way} {kind}", depth, (way, kind, ubatch)) for way, kind, ubatch in DEPTHS[2:])
    yield from ((f"fit {way} {kind} {budget}", fit, (way, kind, budget)) for way, kind, budget in BUDGETS[2:])


def measure(session, build, until, keep):
    result = session.results.get("growth") or {"build": build.number, "rows": []}
    result["rows"] = [row for row in result["rows"] if "failed" not in row]
    rows = list(wanted())
    for name, act, arguments in rows:
        if until.passed() or any(row["name"] == name for row in result["rows"]):
            continue
        try:
            found = act(session, build, *arguments)
        except (OSError, KeyError, ValueError) as error:
            found = {"failed": f"{type(error).__name__}: {error}"[:600]}
        result["rows"].append({"name": name, **found})
        keep(result)
    done = {row["name"] for row in result["rows"] if "failed" not in row}
    result["complete"] = all(name in done for name, *_ in rows)
    return result


def table(part, result):
    lines = [f"{part}:"]
    for row in result["rows"]:
        if "failed" in row:
            lines.append(f"  ! {row['name']}: {row['failed']}"[:300])
        elif row["what"] == "depth":
            peak, grown = row["planned_mib"]["peak"], row["grown_mib"]
            off = 100 * (peak - grown) / grown if grown else 0
            lines.append(f"  {'!' if abs(off) > 3 else ' '} {row['name']}: {row['loaded_mib']} -> {grown} MiB at {row['tokens']} tokens; "
                         f"planned {peak:.0f} ({off:+.1f} %), pool {row['planned_mib']['pool']:.0f}, measured growth {grown - row['loaded_mib']}")
        else:
            here, more = row.get("at_best", {}), row.get("one_step_more", {})
            lines.append(f"  {' ' if here.get('filled') and not more.get('filled') else '!'} {row['name']} MiB: -c {row['best']} "
                         f"{'filled' if here.get('filled') else 'FAILED'}, {STEP} tokens more {'FILLED' if more.get('filled') else 'failed'}"
                         + (f"; {row['further']['context'] - row['best']} more {'FILLED' if row['further']['filled'] else 'failed'}" if "further" in row else ""))
    return lines
