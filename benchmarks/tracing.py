"""What tracing costs an application.

    python -m benchmarks.tracing [--runs 5]

Prints one JSON object with microseconds, each the best of the runs: entering and leaving a span, over calling an empty
function; a callback of asyncio (a step of a task) without context, in a context, and with tracing off; an OpenTelemetry
span with tracing off and on. Also the nanoseconds that reading the thread's CPU clock takes on this machine; a span
reads it twice. As on a host, another process reads what is sent.
"""

import argparse
import asyncio
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider

from collector.activity.activity_socket import ActivityReceiver
from icestream import tracing

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ROUNDS = 20_000


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="times to measure each (default: 5)")
    print(json.dumps(measure(parser.parse_args(argv).runs)))
    return 0


def measure(runs: int) -> dict[str, float]:
    """What main prints."""
    tracer = TracerProvider().get_tracer("benchmark")
    off = {
        "callback_off_us": _best(runs, _callbacks),
        "opentelemetry_span_off_us": _best(runs, lambda: _opentelemetry(tracer)),
    }
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "activity.sock")
        listens = multiprocessing.Event()
        collector = multiprocessing.Process(target=_collector, args=(path, listens), daemon=True)
        collector.start()
        if not listens.wait(60):
            raise SystemExit("the process that reads what is sent has not started")
        tracing.start(service="benchmark", socket=path)
        on = {
            "span_us": _best(runs, _spans) - _best(runs, _functions),
            "callback_without_context_us": _best(runs, _callbacks),
            "callback_in_context_us": _best(runs, _callbacks_in_context),
            "opentelemetry_span_us": _best(runs, lambda: _opentelemetry(tracer)),
            "thread_clock_ns": 1000 * _best(runs, _clocks),
        }
        tracing.stop()
        collector.terminate()
        collector.join()
    return {name: round(value, 3) for name, value in (on | off).items()}


def _best(runs: int, work: Callable[[], None]) -> float:
    """Microseconds of this thread's CPU a round."""
    best = float("inf")
    for _ in range(runs):
        start = time.thread_time_ns()
        work()
        best = min(best, (time.thread_time_ns() - start) / ROUNDS / 1000)
    return best


def _collector(path: str, listens: Event) -> None:
    receiver = ActivityReceiver(Path(path))
    listens.set()
    while True:
        time.sleep(0.02)
        receiver.drain()


def _functions() -> None:
    for _ in range(ROUNDS):
        _nothing()


def _nothing() -> None:
    pass


def _spans() -> None:
    for _ in range(ROUNDS):
        with tracing.span(TRACE, SPAN):
            pass


def _callbacks() -> None:
    asyncio.run(_steps())


def _callbacks_in_context() -> None:
    async def main() -> None:
        with tracing.span(TRACE, SPAN):
            await _steps()

    asyncio.run(main())


async def _steps() -> None:
    for _ in range(ROUNDS):
        await asyncio.sleep(0)


def _opentelemetry(tracer: object) -> None:
    for _ in range(ROUNDS):
        with tracer.start_as_current_span("benchmark"):  # type: ignore[attr-defined]
            pass


def _clocks() -> None:
    for _ in range(ROUNDS):
        time.thread_time_ns()


if __name__ == "__main__":
    raise SystemExit(main())
