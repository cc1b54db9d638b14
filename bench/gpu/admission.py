"""Eight clients whose prompts together pass a budget, on an old engine under guard: with admission by depth, and with everything sent on.

The engine's legacy pool grows with the deepest cell of the shared cache. The budget holds all of the context but a part of that growth, so each prompt fits
by itself and all together do not. With admission every request is answered or refused with its reason; without, the engine dies.
"""

import json
import os
import socket
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request

from gpu import ended

MIB = 1 << 20
CLIENTS, ROUNDS = 8, 3
CONTEXT = 65536
FLAGS = f"-ngl 99 -c {CONTEXT} -b 2048 -np 8 --kv-unified -fa on -ctk q8_0 -ctv q8_0 -fit off --cache-ram 0"
CONFIG = """[models.m8]
model = "{model}"
flags = "{flags}"
too-large = "limit-depth"
depth-admission = {admission}
guard = {{ mode = "budget", budget = "{budget}B", hide-vmm = true }}
"""


def asked(port, path, body, seconds=300):
    """Status and body of a POST; 0 where the connection broke."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except OSError as error:
        return 0, str(error)


class Daemon:
    """`plimsoll serve` of one model on one card with this budget."""

    def __init__(self, session, build, folder, budget, admission):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        with open(f"{folder}/plimsoll.toml", "w") as config:
            config.write(CONFIG.format(model=session.model("m8"), flags=FLAGS, admission=str(admission).lower(), budget=budget))
        card = f"{session.cards[0].spec(budget, pool='legacy')}".replace(f"total={session.cards[0].total_mib}MiB", f"total={budget}B")
        environment = {**session.environment(), "LD_LIBRARY_PATH": ":".join(filter(None, [build.folder, os.environ.get("LD_LIBRARY_PATH")]))}
        self.said = f"{folder}/said"
        self.process = subprocess.Popen([session.plimsoll, "serve", f"{folder}/plimsoll.toml", "--listen", f"127.0.0.1:{self.port}", "--engine", build.numbered(folder),
                                         "--card", card, "--reserve", "0", "--log-file", f"{folder}/engine.log"],
                                        env=environment, stdout=subprocess.PIPE, stderr=open(self.said, "w"))
        self.process.stdout.readline()

    def stop(self):
        ended(self.process, 30)

    def words_for(self, wanted):
        """A text of about so many tokens by the engine's own count."""
        def counted(words):
            status, answer = asked(self.port, "/tokenize", {"model": "m8", "content": "ship " * words})
            if status != 200:
                raise OSError(f"/tokenize answers {status}: {answer[:300]}")
            return len(json.loads(answer)["tokens"])
        few, many = counted(10), counted(110)
        return "ship " * max(1, (wanted - few) * 100 // max(1, many - few))


def load(daemon, texts):
    """All texts at once, several rounds: statuses, and the first words of what was not answered."""
    answers, lock = [], threading.Lock()

    def client(number):
        for turn in range(ROUNDS):
            body = {"model": "m8", "prompt": f"{number} {turn} " + texts, "n_predict": 4, "temperature": 0, "cache_prompt": False,
                    "logit_bias": [[id, False] for id in range(259)]}
            answer = asked(daemon.port, "/completion", body)
            with lock:
                answers.append(answer)

    clients = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    return answers


def run(session, build, admission, budget, depth):
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(session, build, folder, budget, admission)
        try:
            answers = load(daemon, daemon.words_for(depth))
        finally:
            daemon.stop()
        said = open(daemon.said, errors="replace").read()
        log = open(f"{folder}/engine.log", errors="replace").read() if os.path.exists(f"{folder}/engine.log") else ""
    statuses = [status for status, _ in answers]
    reasoned = [text[:300] for status, text in answers if status not in (0, 200)]
    return {"admission": admission, "requests": len(answers), "answered": statuses.count(200), "refused": [status for status in statuses if status not in (0, 200)],
            "broken": statuses.count(0), "reasons": sorted(set(reasoned))[:4], "ended": said.count("engine ended") + log.count("CUDA error"),
            "out_of_memory": log.count("out of memory"), "said": said[-1500:]}


def measure(session, build, until, keep):
    model = ["-m", session.model("m8"), *FLAGS.split()]
    here = session.plan(build, model, specs=[session.cards[0].spec(pool="legacy")])
    card = here["cards"][0]
    growth = card["peak"] - card["loaded"]
    # About five eighths of the context may be filled; each client asks for an eighth, all ask for all of it.
    budget = card["loaded"] + growth * 5 // 8
    depth = session.setting("admission_depth", CONTEXT // CLIENTS - 512)
    result = {"build": build.number, "budget": budget, "growth": growth, "depth": depth, "rows": []}
    for admission in (True, False):
        if not until.passed():
            result["rows"].append(run(session, build, admission, budget, depth))
            keep(result)
    result["complete"] = len(result["rows"]) == 2
    return result


def table(part, result):
    lines = [f"{part}: {CLIENTS} clients of {result['depth']} tokens each, budget {result['budget'] // MIB} MiB"]
    for row in result["rows"]:
        lines.append(f"  {'with' if row['admission'] else 'without'} admission: {row['answered']} of {row['requests']} answered, {len(row['refused'])} refused, "
                     f"{row['broken']} broken, the engine ran out {row['out_of_memory']} times")
    return lines
