#!/usr/bin/env python3
"""Instructions of `plimsoll serve` for one small request: exact where a clock differs by 10 % from run to run.

usage: requests.py [--valgrind PROGRAM] [--connections N] FAKE_ENGINE PLIMSOLL...

Each program serves two loads of different length under callgrind; what they differ by is divided by the requests. valgrind
has to know pidfd_open(2) (3.24 does, 3.19 does not). It cannot run /proc/self/exe, by which the server starts its engines,
so a copy of the program is measured that has a link to the program in its place.
"""
import argparse, json, os, re, signal, socket, subprocess, sys, tempfile, time

SHORT, LONG = 240, 2640
SELF = b"/proc/self/exe"
BODY = json.dumps({"model": "alpha", "messages": [{"role": "user", "content": "x" * 330}]})


def answer(stream):
    """Reads one answer, which has to be a success."""
    text = b""
    while b"\r\n\r\n" not in text:
        text += stream.recv(65536)
    head, body = text.split(b"\r\n\r\n", 1)
    length = int(re.search(rb"content-length: *(\d+)", head, re.I).group(1))
    while len(body) < length:
        body += stream.recv(65536)
    if not head.startswith(b"HTTP/1.1 200"):
        sys.exit(f"the server answered {head!r} {body!r}")


def connect(port, deadline):
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            if time.monotonic() > deadline:
                sys.exit("the server does not listen")
            time.sleep(0.2)


def instructions(valgrind, program, folder, connections, requests):
    """Instructions of a whole run with so many requests."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    out = os.path.join(folder, "out")
    command = [valgrind, "--tool=callgrind", f"--callgrind-out-file={out}", program, "serve", os.path.join(folder, "c.toml")]
    command += ["--listen", f"127.0.0.1:{port}", "--card", "name=bench,kind=host,total=1GiB"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    streams = [connect(port, time.monotonic() + 60) for _ in range(connections)]
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer abcdefgh\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    request = (head + BODY).encode()
    streams[0].sendall(request)
    answer(streams[0])
    for _ in range(requests // connections):
        for stream in streams:
            stream.sendall(request)
        for stream in streams:
            answer(stream)
    server.send_signal(signal.SIGTERM)
    server.wait(60)
    with open(out) as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(("totals:", "summary:")))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--valgrind", default="valgrind")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("engine")
    parser.add_argument("programs", nargs="+")
    options = parser.parse_args()
    # As long as the path that it stands for.
    folder = tempfile.mkdtemp(prefix="p", dir="/tmp")
    link = os.path.join("/tmp", "p" + os.urandom(4).hex())
    assert len(link) == len(SELF), link
    with open(os.path.join(folder, "c.toml"), "w") as config:
        engine = os.path.abspath(options.engine)
        config.write(f'[models.alpha]\ncmd = "{engine} --port ${{PORT}} --alias alpha --fake slots=64"\nmemory = "600MiB"\n')
    for program in options.programs:
        with open(program, "rb") as original, open(os.path.join(folder, "plimsoll"), "wb") as copy:
            copy.write(original.read().replace(SELF, link.encode()))
        os.chmod(copy.name, 0o755)
        os.symlink(os.path.abspath(program), link)
        short, long = (instructions(options.valgrind, copy.name, folder, options.connections, count) for count in (SHORT, LONG))
        os.unlink(link)
        print(f"{program}: {(long - short) / (LONG - SHORT):.0f} instructions a request", flush=True)


main()
