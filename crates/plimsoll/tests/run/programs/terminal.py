"""usage: terminal.py COMMAND...: runs it on a terminal of its own, types Ctrl-C when it says "up", and shows what it said.

COMMAND itself stands still while Ctrl-C is typed, so that what it passes on comes after what the terminal sends.
"""
import os
import pty
import signal
import sys
import time

pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
said, typed, end = b"", False, time.monotonic() + 20
while time.monotonic() < end:
    try:
        piece = os.read(terminal, 4096)
    except OSError:
        break
    if not piece:
        break
    said += piece
    if b"up" in said and not typed:
        os.kill(pid, signal.SIGSTOP)
        os.write(terminal, b"\x03")
        time.sleep(0.3)
        os.kill(pid, signal.SIGCONT)
        typed = True
_, status = os.waitpid(pid, 0)
sys.stdout.buffer.write(said)
print("status", os.waitstatus_to_exitcode(status))
