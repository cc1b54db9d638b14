"""What the bus alone allows an engine whose used positions exceed those on the card, and a table of measured speeds beside it."""

import re

import noise
from gpu import median

UBATCH = 512


class Bus:
    """Time that used positions beyond those on the card take, as guard said at the start."""

    def __init__(self, log, streams):
        with open(log, errors="replace") as file:
            text = file.read()
        first = re.search(r"KV cache's \d+ positions the first (\d+) are on the card", text)
        price = re.search(r"each 1000 of them take ([\d.]+) ms of a token", text)
        self.first = int(first.group(1)) if first else None
        self.price = float(price.group(1)) if price else None
        self.streams = streams

    def limits(self, way, depth, bare, share):
        """Decode and prefill if each byte beyond crossed the bus once a token or a batch; None if guard said no price."""
        if self.first is None or self.price is None:
            return None
        # With the exchange, a conversation has the card's positions of the idle slots too.
        first = self.first * (self.streams if way == "exchange" else 1)
        decode = 1000 / bare["decode"] + max(0, depth - first) / 1000 * self.price * share
        batches = range(0, depth, UBATCH)
        prefill = depth / bare["prefill"] + sum(max(0, at + UBATCH - first) / 1e6 * self.price for at in batches)
        return {"decode": round(1000 / decode, 1), "prefill": round(depth / prefill)}


def share_read(path):
    """Share of the weights in layers that a token reads: of experts, those that are used."""
    header = noise.Header(path)
    experts = sum(noise.size(count, kind) for name, count, kind, _ in header.tensors if "_exps" in name)
    layers = sum(noise.size(count, kind) for name, count, kind, _ in header.tensors if name.startswith("blk."))
    used, of = header.keys.get("expert_used_count", 1), header.keys.get("expert_count", 1)
    return (layers - experts + experts * used / of) / layers


def add_limits(row, rows, log, share, streams):
    """The limit beside each result, by bare's speed at the same depth."""
    of_bare = [of for other in rows if other["case"] == row["case"] and other["way"] == "bare" for of in other["results"]]
    bare = {of["depth"]: of for of in of_bare if "depth" in of}
    bus = Bus(log, streams)
    for of in row["results"]:
        own = bare.get(of.get("depth"))
        if own and own["decode"]:
            of["limit"] = bus.limits(row["way"], of["depth"], {key: median(own[key]) for key in ("decode", "prefill")}, share)


def table(rows):
    """Lines of a table: medians, and the limit of the bus."""
    yield "| case | way | depth | decode | limit | prefill | limit | answers | longest pause ms |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        for of in row["results"]:
            if not of.get("decode"):
                continue
            limit = of.get("limit") or {"decode": "", "prefill": ""}
            # Weights of which the engine makes no numbers show nothing.
            same = ("same" if of["numbers"] else "same words") if of["same"] and of["same_likely"] else "DIFFER"
            again = " again" if of["again"] else ""
            yield (f"| {row['case']} | {row['way']} | {of['depth']}{again} | {median(of['decode'])} | {limit['decode']} | {median(of['prefill'])} | "
                   f"{limit['prefill']} | {same} | {of.get('longest_pause_ms', '')} |")


def conversations(rows):
    """Lines of a table: the speed over the turns that all ways made, and the longest times between two tokens and at one safe point."""
    made = [(row["way"], of) for row in rows for of in row["results"] if of.get("after")]
    if not made:
        return
    shared = min(of["turns"] for _, of in made)
    yield f"| way | tokens/s over {shared} turns | over all | turns | longest gap ms | longest pause ms | answers that differ |"
    yield "|---|---|---|---|---|---|---|"
    for way, of in made:
        tokens, milliseconds = of["after"][shared - 1]
        yield (f"| {way} | {1000 * tokens / max(milliseconds, 1):.0f} | {of['tokens_per_second']} | {of['turns']} | {of['longest_gap_ms']} | "
               f"{of.get('longest_pause_ms', '')} | {len(of['differ'])} |")
