"""Streams of several clients that wait for a model: ADDRESS, number of streams, seconds that each waits at least."""

import collections, json, subprocess, sys, tempfile, threading, time

import httpx
import requests

ADDRESS, COUNT, LEAST = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
BODY = {"model": "next", "stream": True, "messages": [{"role": "user", "content": "the ship"}]}
PATH = "/v1/chat/completions"
# A client that gets no byte for so long gives the stream up.
SILENCE = 10
NGINX = """daemon off; pid {0}/pid; error_log {0}/errors; worker_rlimit_nofile 4096;
events {{ worker_connections 1024; }}
http {{ access_log off; client_body_temp_path {0}; proxy_temp_path {0}; fastcgi_temp_path {0}; uwsgi_temp_path {0};
 scgi_temp_path {0};
 server {{ listen unix:{0}/socket; location / {{ proxy_pass http://{1}; proxy_read_timeout {2}s; }} }} }}"""


def by_requests(url, _):
    with requests.post(url + PATH, json=BODY, stream=True, timeout=(5, SILENCE)) as answer:
        answer.raise_for_status()
        return answer.content.decode()


def by_httpx(url, transport):
    with httpx.Client(timeout=httpx.Timeout(SILENCE), transport=transport) as client:
        with client.stream("POST", url + PATH, json=BODY) as answer:
            answer.raise_for_status()
            return answer.read().decode()


def by_curl(url, _):
    command = ["curl", "-sSNf", "--speed-limit", "1", "--speed-time", str(SILENCE), "-d", json.dumps(BODY)]
    return subprocess.run([*command, url + PATH], capture_output=True, text=True, check=True).stdout


def main():
    url, folder = "http://" + ADDRESS, tempfile.mkdtemp()
    with open(folder + "/conf", "w") as conf:
        conf.write(NGINX.format(folder, ADDRESS, SILENCE))
    proxy = subprocess.Popen(["nginx", "-c", folder + "/conf"], stderr=subprocess.DEVNULL)
    time.sleep(1)
    through = lambda url, _: by_httpx(url, httpx.HTTPTransport(uds=folder + "/socket"))
    kinds = [("requests", by_requests), ("httpx", by_httpx), ("curl", by_curl), ("httpx through nginx", through)]
    done, wrong, waits = collections.Counter(), [], []

    def one(name, ask):
        began = time.monotonic()
        try:
            text = ask(url, None)
            waited = time.monotonic() - began
            comments = text.count(": waiting for ")
            assert text.endswith("data: [DONE]\n\n") and waited >= LEAST and comments >= LEAST / 6, (waited, text)
            done[name] += 1
            waits.append(waited)
        except Exception as error:
            wrong.append((name, repr(error)))

    threads = [threading.Thread(target=one, args=kinds[i % len(kinds)]) for i in range(COUNT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    proxy.terminate()
    proxy.wait()
    print(dict(done), "waited %.1f to %.1f s" % (min(waits, default=0), max(waits, default=0)))
    for error in wrong[:5]:
        print(*error)
    sys.exit(bool(wrong))


main()
