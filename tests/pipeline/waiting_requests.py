"""Requests that each wait for one thing. Prints a JSON object, NAME: trace ID, and ends.

python -m tests.pipeline.waiting_requests SOCKET FOLDER
"""

import asyncio
import json
import mmap
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from icestream import tracing

SECONDS = 0.6
BUSY = "while True: pass"


def for_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    threading.Timer(SECONDS, lock.release).start()
    with lock:
        pass


def for_a_pipe() -> None:
    reader, writer = os.pipe()
    threading.Timer(SECONDS, os.write, (writer, b"x")).start()
    os.read(reader, 1)


def for_the_network() -> None:
    here, there = socket.socketpair()
    threading.Timer(SECONDS, there.send, (b"x",)).start()
    here.recv(1)


def for_a_disk(folder: Path) -> None:
    block = mmap.mmap(-1, 1 << 20)  # at a whole page, as O_DIRECT asks for
    file = os.open(folder / "written", os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o600)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        os.pwrite(file, block, 0)
        os.fsync(file)
    os.close(file)


def for_a_timer() -> None:
    time.sleep(SECONDS)


def for_a_cpu() -> None:
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2 * (os.cpu_count() or 1))]
    with tracing.span(trace_id("run_queue"), name="compute"):
        until = time.thread_time() + SECONDS / 4
        while time.thread_time() < until:
            pass
    for process in busy:
        process.kill()
        process.wait()


def trace_id(name: str) -> str:
    return name.encode().hex().zfill(32)[:32]


def main(arguments: list[str]) -> None:
    tracing.start(service="waiting", socket=arguments[0])
    requests: dict[str, Callable[[], None]] = {
        "lock": for_a_lock,
        "pipe": for_a_pipe,
        "network": for_the_network,
        "disk": lambda: for_a_disk(Path(arguments[1])),
        "sleep": for_a_timer,
        "run_queue": for_a_cpu,
    }
    for name, wait in requests.items():
        with tracing.span(trace_id(name), name=name) if name != "run_queue" else nullcontext():
            wait()

    async def parallel() -> None:
        with tracing.span(trace_id("threads"), name="threads"):
            await asyncio.gather(*(asyncio.to_thread(time.sleep, SECONDS) for _ in range(2)))

    async def task() -> None:
        with tracing.span(trace_id("task"), name="task"):
            await asyncio.sleep(SECONDS)

    asyncio.run(parallel())
    asyncio.run(task())
    tracing.stop()
    print(json.dumps({name: trace_id(name) for name in (*requests, "threads", "task")}))


if __name__ == "__main__":
    main(sys.argv[1:])
