"""Requests whose CPU is known: each reads the thread's CPU clock itself, to be compared with what a profiler says."""

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


class Request(NamedTuple):
    """A request that was worked through."""

    trace_id: str
    operation: str
    by: str  # "thread" or "asyncio"
    tid: int
    thread_cpu_ns: int  # of the thread's CPU clock


def run_known_cpu(requests: int, thread_cpu_ns: int) -> Iterator[Request]:
    """Works through requests of at least `thread_cpu_ns` each: three quarters on THREADS threads, the rest at the same
    time as TASKS asyncio tasks that take turns on one more thread.
    """
    done: queue.SimpleQueue[Request] = queue.SimpleQueue()
    in_turns = requests // 4
    shares = [range(number, requests - in_turns, THREADS) for number in range(THREADS)]
    threads = [threading.Thread(target=_on_thread, args=(share, thread_cpu_ns, done)) for share in shares]
    threads.append(threading.Thread(target=lambda: asyncio.run(_on_tasks(in_turns, thread_cpu_ns, done))))
    for thread in threads:
        thread.start()
    for _ in range(requests):
        yield done.get()
    for thread in threads:
        thread.join()


def _on_thread(share: range, thread_cpu_ns: int, done: "queue.SimpleQueue[Request]") -> None:
    paths = list(THREADED)
    for number in share:
        path = paths[number % len(paths)]
        with tracing.span(_new_trace(), name=f"GET {path}") as span:
            start = time.thread_time_ns()
            for _ in _until(THREADED[path], start + thread_cpu_ns):
                pass
            took = time.thread_time_ns() - start
        done.put(Request(span.trace_id, span.name, "thread", threading.get_native_id(), took))


async def _on_tasks(requests: int, thread_cpu_ns: int, done: "queue.SimpleQueue[Request]") -> None:
    paths = list(ASYNCIO)

    async def take_turns(share: range) -> None:
        for number in share:
            path = paths[number % len(paths)]
            async with tracing.span(_new_trace(), name=f"GET {path}") as span:
                took = await _in_turns(ASYNCIO[path], thread_cpu_ns)
            done.put(Request(span.trace_id, span.name, "asyncio", threading.get_native_id(), took))

    await asyncio.gather(*(take_turns(range(task, requests, TASKS)) for task in range(TASKS)))


async def _in_turns(work: Work, thread_cpu_ns: int) -> int:
    """Lets others in after every step; returns the CPU time of the steps."""
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
    """Steps of the work until the thread's CPU clock has got there."""
    while True:
        for step in work():
            yield step
            if time.thread_time_ns() >= clock:
                return


def _new_trace() -> str:
    return f"{random.getrandbits(128) or 1:032x}"
