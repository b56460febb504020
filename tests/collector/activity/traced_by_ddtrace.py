"""Two threads work for requests that ddtrace traces. Prints of each: thread, trace ID, start and end (monotonic).

They begin when it reads a line.
"""

import threading
import time

from ddtrace.trace import tracer

REQUESTS, CPU_S = 30, 0.02


served: list[tuple[int, str, int, int]] = []


def serve() -> None:
    for _ in range(REQUESTS):
        with tracer.trace("web.request") as span:
            start, until = time.monotonic_ns(), time.thread_time() + CPU_S
            while time.thread_time() < until:
                sum(range(1000))
            served.append((threading.get_native_id(), f"{span.trace_id:032x}", start, time.monotonic_ns()))


threads = [threading.Thread(target=serve) for _ in range(2)]
input()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for row in served:
    print(*row)
