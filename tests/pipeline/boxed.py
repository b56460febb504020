"""A traced program for a container: two threads that answer requests, of 30 ms of CPU each. Standard library only."""

import secrets
import sys
import threading
import time

from icestream import tracing


def spin(ms: float) -> None:
    end = time.thread_time() + ms / 1000
    while time.thread_time() < end:
        sum(range(2000))


def serve() -> None:
    while True:
        with tracing.span(secrets.token_hex(16), name="GET /boxed"):
            spin(30)
        time.sleep(0.03)


tracing.start(service=sys.argv[1])
for _ in range(2):
    threading.Thread(target=serve, daemon=True).start()
time.sleep(600)
