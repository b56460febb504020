"""Requests of known CPU: each reads its thread's CPU clock itself, so that a test can compare it with the profile."""

import asyncio
import queue
import random
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from icestream import tracing
from standalone.demo.request_work import ASYNCIO, THREADED, Work

THREADS = 4
TASKS = 4
_END = object()


class FinishedRequest(NamedTuple):
    """A finished request."""

    trace_id: str
    operation: str
    by: str  # "thread" or "asyncio"
    tid: int
    thread_cpu_ns: int
    thread_clock_ns: int
    """The CPU clock of its thread, after the request."""


def run_known_cpu(requests: int, thread_cpu_ns: int) -> Iterator[FinishedRequest]:
    """Runs requests of at least `thread_cpu_ns` each; yields each when it is finished.

    Three quarters run on THREADS threads, and the rest at the same time as TASKS asyncio tasks on one more thread.
    """
    finished: queue.SimpleQueue[FinishedRequest] = queue.SimpleQueue()
    on_tasks = requests // 4
    shares = [range(number, requests - on_tasks, THREADS) for number in range(THREADS)]
    threads = [threading.Thread(target=_on_thread, args=(share, thread_cpu_ns, finished)) for share in shares]
    threads.append(threading.Thread(target=lambda: asyncio.run(_on_tasks(on_tasks, thread_cpu_ns, finished))))
    for thread in threads:
        thread.start()
    for _ in range(requests):
        yield finished.get()
    for thread in threads:
        thread.join()


def _on_thread(share: range, thread_cpu_ns: int, finished: "queue.SimpleQueue[FinishedRequest]") -> None:
    paths = list(THREADED)
    for number in share:
        path = paths[number % len(paths)]
        with tracing.span(_new_trace(), name=f"GET {path}") as span:
            start = time.thread_time_ns()
            for _ in _until(THREADED[path], start + thread_cpu_ns):
                pass
            took = time.thread_time_ns() - start
        finished.put(_request(span, "thread", took))


def _request(span: tracing.Span, by: str, took_ns: int) -> FinishedRequest:
    return FinishedRequest(span.trace_id, span.name, by, threading.get_native_id(), took_ns, time.thread_time_ns())


async def _on_tasks(requests: int, thread_cpu_ns: int, finished: "queue.SimpleQueue[FinishedRequest]") -> None:
    paths = list(ASYNCIO)

    async def take_turns(share: range) -> None:
        for number in share:
            path = paths[number % len(paths)]
            async with tracing.span(_new_trace(), name=f"GET {path}") as span:
                took = await _in_turns(ASYNCIO[path], thread_cpu_ns)
            finished.put(_request(span, "asyncio", took))

    await asyncio.gather(*(take_turns(range(task, requests, TASKS)) for task in range(TASKS)))


async def _in_turns(work: Work, thread_cpu_ns: int) -> int:
    """Lets other tasks run after every step; returns the thread CPU of the steps."""
    took = 0
    while True:
        steps = work()
        while True:
            start = time.thread_time_ns()
            more = next(steps, _END)
            took += time.thread_time_ns() - start
            if took >= thread_cpu_ns:
                return took
            if more is _END:
                break
            await asyncio.sleep(0)


def _until(work: Work, clock: int) -> Iterator[None]:
    """Yields after each step of the work until the thread's CPU clock reaches `clock`."""
    while True:
        for step in work():
            yield step
            if time.thread_time_ns() >= clock:
                return


def _new_trace() -> str:
    return f"{random.getrandbits(128) or 1:032x}"
