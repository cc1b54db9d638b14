#!/usr/bin/env python3
"""llama-server behind a proxy that holds each POST back for two seconds.

Usage: slow_engine.py LLAMA_SERVER ARGUMENTS. llama.cpp's tests of its router count on such a pause, which the router
makes itself where LLAMA_SERVER_DEBUG_FAKE_TIMING is set.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time

PAUSE = 2
DEATH_SIGNAL = 1


def dies_with_parent():
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)


def pump(source, target, pauses):
    try:
        while data := source.recv(1 << 16):
            if pauses and data.startswith(b"POST "):
                time.sleep(PAUSE)
            target.sendall(data)
    except OSError:
        pass
    for side in (source, target):
        try:
            side.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def converse(client, port):
    try:
        engine = socket.create_connection(("127.0.0.1", port))
    except OSError:
        # The engine does not listen yet.
        client.close()
        return
    threading.Thread(target=pump, args=(client, engine, True), daemon=True).start()
    pump(engine, client, False)


def main(program, arguments):
    if "--port" not in arguments:
        os.execv(program, [program, *arguments])
    place = arguments.index("--port") + 1
    listener = socket.create_server(("127.0.0.1", int(arguments[place])))
    with socket.create_server(("127.0.0.1", 0)) as free:
        inner = free.getsockname()[1]
    arguments[place] = str(inner)
    engine = subprocess.Popen([program, *arguments], preexec_fn=dies_with_parent)
    signal.signal(signal.SIGTERM, lambda *_: engine.terminate())

    def accept():
        while True:
            client, _ = listener.accept()
            threading.Thread(target=converse, args=(client, inner), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.exit(max(engine.wait(), 0))


main(sys.argv[1], sys.argv[2:])
