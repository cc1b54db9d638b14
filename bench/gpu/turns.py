"""Four models and eight clients on 40 GiB, of which two sets fit: answers and waits of a minute, for several programs one after the other.

usage: turns.py OUT SPECIMEN SERVER_FOLDER SECONDS NAME=PLIMSOLL[;give-up][;VARIABLE=VALUE]...
The models m8, l8, oss and q30 (2.8, 9.5, 12.6 and 34.5 GiB) are asked five, four, three times and once in thirteen, for 64 tokens after 200. With
`give-up` a client leaves after 20 s and asks again. The files are read once before, so that no program pays for cold pages.
"""

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

OUT, SPECIMEN, ENGINE, SECONDS = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
MODELS = {"m8": 5, "l8": 4, "oss": 3, "q30": 1}
FLAGS = "ctx-size = 32768\nflash-attn = on\nn-gpu-layers = 99\nfit = off\ncache-ram = 0\n"
FOLDER = "/tmp/turns"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def used():
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, capture_output=True, text=True).stdout.split()[0])


def ask(port, model, begin, give_up):
    asked, stated = time.perf_counter(), {"model": model}
    stated["at"] = round(asked - begin, 3)
    body = {"model": model, "prompt": [random.randrange(300, 20000) for _ in range(200)], "max_tokens": 64}
    body |= {"stream": True, "ignore_eos": True, "temperature": 0}
    for _ in range(6):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=20 if give_up else 120)
        try:
            client.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            reply, read = client.getresponse(), b""
            while part := reply.read1(65536):
                read += part
                # Comments that keep a connection open are no part of the answer.
                if b"data:" in read:
                    stated.setdefault("first", round(time.perf_counter() - asked, 3))
            stated["answered"] = reply.status == 200 and b"[DONE]" in read
            break
        except TimeoutError:
            stated["left"] = stated.get("left", 0) + 1
        except OSError as error:
            stated["error"] = repr(error)[:200]
            break
        finally:
            client.close()
    stated["took"] = round(time.perf_counter() - asked, 3)
    return stated


def share(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * part))] if values else None


def measure(name, program, give_up, environment):
    port, base = free_port(), used()
    words = [program, "serve", f"{FOLDER}/models.ini", "--listen", f"127.0.0.1:{port}", "--engine", f"{ENGINE}/llama-server"]
    log = open(f"{OUT}/{name}.log", "w")
    served = subprocess.Popen([*words, "--card", "name=NVIDIA H200,total=40GiB"], stdout=log, stderr=log, env=environment)
    time.sleep(2)
    begin, requests, peak, done = time.perf_counter(), [], [0], threading.Event()

    def watch():
        while not done.wait(0.5):
            peak[0] = max(peak[0], used() - base)

    def client(number):
        chance = random.Random(number)
        while time.perf_counter() < begin + SECONDS:
            model = chance.choices(list(MODELS), list(MODELS.values()))[0]
            requests.append({"client": number, **ask(port, model, begin, give_up)})

    clients = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    watcher = threading.Thread(target=watch)
    for thread in [*clients, watcher]:
        thread.start()
    for thread in clients:
        thread.join()
    done.set()
    watcher.join()
    served.send_signal(signal.SIGTERM)
    served.wait(40)
    good = [request for request in requests if request.get("answered")]
    first = {model: [request["first"] for request in good if request["model"] == model] for model in MODELS}
    row = {"name": name, "answers": len(good), "failed": len(requests) - len(good), "peak_mib": peak[0]}
    row["p50"] = {model: share(waits, 0.5) for model, waits in first.items()}
    row["p99"] = {model: share(waits, 0.99) for model, waits in first.items()}
    print(json.dumps(row), flush=True)
    return {**row, "requests": requests}


def main():
    for folder in (FOLDER, OUT):
        os.makedirs(folder, exist_ok=True)
    for model in MODELS:
        if not os.path.exists(f"{FOLDER}/{model}.gguf"):
            subprocess.run([SPECIMEN, model, f"{FOLDER}/{model}.gguf"], check=True, capture_output=True)
        with open(f"{FOLDER}/{model}.gguf", "rb") as file:
            while file.read(1 << 24):
                pass
    with open(f"{FOLDER}/models.ini", "w") as preset:
        preset.writelines(f"[{model}]\nmodel = {FOLDER}/{model}.gguf\n{FLAGS}\n" for model in MODELS)
    libraries = ENGINE + ":" + os.environ.get("LD_LIBRARY_PATH", "")
    rows = []
    for words in sys.argv[5:]:
        name, rest = words.split("=", 1)
        program, *more = rest.split(";")
        variables = dict(word.split("=", 1) for word in more if "=" in word)
        environment = {**os.environ, "LD_LIBRARY_PATH": libraries, **variables}
        rows.append(measure(name, program, "give-up" in more, environment))
        with open(f"{OUT}/turns.json", "w") as file:
            json.dump(rows, file)


main()
