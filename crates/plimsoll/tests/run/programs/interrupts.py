"""Counts the SIGINTs of one second, each taken as soon as it comes."""
import signal
import time

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
print("up", flush=True)
count, end = 0, time.monotonic() + 1
while (left := end - time.monotonic()) > 0:
    if signal.sigtimedwait([signal.SIGINT], left):
        count += 1
print("interrupts", count)
