"""A stand-in for ComfyUI and for vLLM with sleep mode: what it loads takes memory, and it frees that on request.

Usage: freeing.py PORT KIND MEBIBYTES. GET /system_stats and /health answer once it listens. POST /fill loads. A ComfyUI
shows its jobs at /queue (POST /job begins one that never ends) and frees at /free. A vLLM sleeps at /sleep, answers
nothing then, and wakes at /wake_up. GET /said lists the requests that changed something.
"""

import http.server
import json
import sys
import threading

PORT, KIND, SIZE = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
memory = bytearray()
asleep, jobs, said = False, [], []
turn = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/queue":
            return self.answer(200, {"queue_running": jobs, "queue_pending": []})
        self.answer(200, said)

    def do_POST(self):
        global memory, asleep
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.split("?")[0]
        with turn:
            said.append(path)
            if path == "/job":
                jobs.append([0, "job"])
            elif path in ("/fill", "/wake_up"):
                asleep = False
                memory = bytearray(b"x") * (SIZE << 20)
            elif path == "/sleep" or (path == "/free" and not jobs):
                asleep = path == "/sleep"
                memory = bytearray()
            elif path.startswith("/v1/"):
                return self.answer(503 if asleep else 200, {"asleep": asleep})
        self.answer(200, {})


http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
