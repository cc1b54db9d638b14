"""Shared parts of every measurement on a card: an engine in its own process, with and without guard, and the card's own word.

The guard is asked by its environment alone, as `plimsoll run` does it, so that a measurement of guard measures nothing else.
"""

import json
import os
import signal
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.request


def guarded(words, library, pages=None, trace=None):
    """The environment under guard with these option words, or the plain one where `words` is None."""
    environment = dict(os.environ)
    if words is None:
        return environment
    environment["LD_PRELOAD"] = os.path.abspath(library)
    environment["PLIMSOLL_GUARD"] = words
    if pages:
        os.makedirs(pages, exist_ok=True)
        environment["PLIMSOLL_GUARD_PAGES"] = pages
    if trace:
        environment["PLIMSOLL_GUARD_TRACE"] = trace
    return environment


def page(pages, pid):
    """The first card of a process's budget page (crates/wire/src/page.rs), in bytes; None where there is no page."""
    names = ["total", "allocated", "reserved", "idle", "spilled", "peak", "context", "allocations", "ooms"]
    try:
        with open(f"{pages}/{pid}.page", "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return None
    return dict(zip(names, struct.unpack_from("<9Q", content, 64 + 16)))


def used(pid):
    """MiB that the driver counts for this process, on each card it is on."""
    rows = subprocess.run(
        ["nvidia-smi", "--query-compute-apps=pid,gpu_bus_id,used_memory", "--format=csv,noheader,nounits"],
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()
    cells = [[cell.strip() for cell in row.split(",")] for row in rows if row.strip()]
    return {bus: int(mib) for row_pid, bus, mib in cells if int(row_pid) == pid}


def taken():
    """MiB in use on each card, whoever holds them."""
    rows = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True
    ).stdout.split()
    return [int(row) for row in rows]


class Memory:
    """MiB of a process that is yet to be started, by the driver's count of it, or what these cards (all, if none is named) have more in use by
    then, where the driver counts other process ids."""

    def __init__(self, *cards):
        self.before = taken()
        self.cards = cards or range(len(self.before))

    def of(self, pid):
        if counted := sum(used(pid).values()):
            return counted
        now = taken()
        return sum(now[card] - self.before[card] for card in self.cards)


def ended(process, seconds):
    """Ends a process, by force after so many seconds; its exit status, negative for a signal."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


class Engine:
    """A llama-server that answers on a port of its own; `before` stands before it on the command line."""

    def __init__(self, binary, flags, environment, log, before=()):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        folder = os.path.dirname(os.path.abspath(binary))
        paths = [environment.get("ENGINE_LIBRARIES"), folder, environment.get("LD_LIBRARY_PATH")]
        environment = {**environment, "LD_LIBRARY_PATH": ":".join(path for path in paths if path)}
        self.log = log
        self.process = subprocess.Popen(
            [*before, binary, *flags, "--host", "127.0.0.1", "--port", str(self.port)],
            env=environment, stdout=open(log, "wb"), stderr=subprocess.STDOUT,
        )

    def ready(self, seconds=120):
        """Waits until it answers; False if it died or took too long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2) as answer:
                    if answer.status == 200:
                        return True
            except OSError:
                time.sleep(0.1)
        return False

    def complete(self, tokens, predict, **more):
        """One /completion over a prompt of token ids; raises OSError if the engine dies under it."""
        with self.asked(tokens, predict, **more) as answer:
            return json.load(answer)

    def stream(self, tokens, predict, **more):
        """The events of one /completion as they come."""
        with self.asked(tokens, predict, stream=True, **more) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])

    def asked(self, tokens, predict, **more):
        """The open answer to one /completion.

        The bytes and the end (ids 0 to 258 of `specimen`) are kept out of the answer: what random weights say need not be
        UTF-8, and b8799 answers such text with status 500.
        """
        body = {"prompt": tokens, "n_predict": predict, "temperature": 0, "cache_prompt": True, "return_tokens": True,
                "logit_bias": [[id, False] for id in range(259)], **more}
        if not body.get("stream"):
            body.setdefault("response_fields", ["tokens", "timings"])
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/completion", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        try:
            return urllib.request.urlopen(request, timeout=300)
        except urllib.error.HTTPError as error:
            raise OSError(f"status {error.code}: {error.read()[:300].decode(errors='replace')}") from error

    def stop(self):
        """Ends it and returns its exit status, negative for a signal."""
        return ended(self.process, 20)

    def said(self, *words):
        """The lines of its log that hold one of these words."""
        with open(self.log, errors="replace") as lines:
            return [line.strip()[:300] for line in lines if any(word in line for word in words)][-12:]


def tokens(count, vocabulary, salt=1):
    """A prompt of that many token ids, the same for the same salt."""
    state, ids = salt, []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        ids.append(10 + (state >> 33) % (vocabulary - 20))
    return ids


class Until:
    """A moment after which no new measurement begins; what was measured by then is whole."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return max(0.0, self.end - time.monotonic())

    def passed(self):
        return time.monotonic() > self.end


def median(numbers):
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
