"""A traced program whose requests each use a known CPU time, by the clocks of their own threads.

    python -m benchmarks.requests.known_cost MODE --requests 100 --socket PATH

Prints a line and waits for one on standard input; then runs the requests, and prints each as a JSON line.
"""

import argparse
import asyncio
import json
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from multiprocessing.queues import SimpleQueue
from typing import NamedTuple

from icestream import tracing

SERVICE = "known-cost"
OPERATIONS = {"GET /small": 10_000_000, "GET /middle": 20_000_000, "GET /large": 30_000_000}
"""The least thread CPU of a request, nanoseconds."""
_STEP_NS = 1_000_000
_THREADS, _POOL, _TASKS, _PROCESSES = 4, 8, 4, 2


class Request(NamedTuple):
    """A finished request."""

    trace_id: str
    operation: str
    thread_cpu_ns: int


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--socket", required=True, help="the collector's activity socket")
    args = parser.parse_args(argv)
    tracing.start(service=SERVICE, socket=args.socket)
    print("ready", flush=True)
    sys.stdin.readline()
    operations = [list(OPERATIONS)[number % len(OPERATIONS)] for number in range(args.requests)]
    for request in MODES[args.mode](operations):
        print(json.dumps(request._asdict()))
    tracing.stop()
    return 0


def on_threads(operations: Sequence[str]) -> list[Request]:
    """Each thread runs its share."""
    with ThreadPoolExecutor(_THREADS) as pool:
        shares = pool.map(
            lambda mine: list(map(_run, mine)), (operations[first::_THREADS] for first in range(_THREADS))
        )
        return list(chain.from_iterable(shares))


def on_pool(operations: Sequence[str]) -> list[Request]:
    """A request goes to whichever thread of a pool is free."""
    with ThreadPoolExecutor(_POOL) as pool:
        return list(pool.map(_run, operations))


def on_asyncio(operations: Sequence[str]) -> list[Request]:
    """Tasks of one event loop take turns after each millisecond."""
    return asyncio.run(_on_tasks(operations, _spin_in_turns))


def on_uvloop(operations: Sequence[str]) -> list[Request]:
    """As `on_asyncio`, by uvloop."""
    import uvloop

    return uvloop.run(_on_tasks(operations, _spin_in_turns))


def mixed(operations: Sequence[str]) -> list[Request]:
    """Each task uses half of its CPU on the event loop's thread, and half on another one."""
    return asyncio.run(_on_tasks(operations, _spin_here_and_there))


def on_processes(operations: Sequence[str]) -> list[Request]:
    """Forked processes, each with threads."""
    context = multiprocessing.get_context("fork")
    results: SimpleQueue[list[Request]] = context.SimpleQueue()
    shares = [operations[first::_PROCESSES] for first in range(_PROCESSES)]
    processes = [context.Process(target=lambda mine=mine: results.put(on_threads(mine))) for mine in shares]
    for process in processes:
        process.start()
    done = [request for _ in processes for request in results.get()]
    for process in processes:
        process.join()
    return done


MODES: dict[str, Callable[[Sequence[str]], list[Request]]] = {
    "threads": on_threads,
    "pool": on_pool,
    "asyncio": on_asyncio,
    "uvloop": on_uvloop,
    "mixed": mixed,
    "processes": on_processes,
}


def _run(operation: str) -> Request:
    with tracing.span(_new_trace(), name=operation) as span:
        return Request(span.trace_id, operation, _spin(OPERATIONS[operation]))


async def _on_tasks(operations: Sequence[str], work: Callable[[int], Iterable[int] | object]) -> list[Request]:
    done: list[Request] = []

    async def run(mine: Iterable[str]) -> None:
        for operation in mine:
            async with tracing.span(_new_trace(), name=operation) as span:
                took = await work(OPERATIONS[operation])  # type: ignore[misc]
            done.append(Request(span.trace_id, operation, took))

    await asyncio.gather(*(run(operations[first::_TASKS]) for first in range(_TASKS)))
    return done


async def _spin_in_turns(cpu_ns: int) -> int:
    took = 0
    while took < cpu_ns:
        took += _spin(min(_STEP_NS, cpu_ns - took))
        await asyncio.sleep(0)
    return took


async def _spin_here_and_there(cpu_ns: int) -> int:
    here = await _spin_in_turns(cpu_ns // 2)
    return here + await asyncio.to_thread(_spin, cpu_ns - here)


def _spin(cpu_ns: int) -> int:
    """Uses the CPU for so long by the thread's clock; returns how much it was."""
    start = time.thread_time_ns()
    while (took := time.thread_time_ns() - start) < cpu_ns:
        sum(range(100))
    return took


def _new_trace() -> str:
    return f"{random.getrandbits(128) or 1:032x}"


if __name__ == "__main__":
    sys.exit(main())
