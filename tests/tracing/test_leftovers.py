"""A thread is in no request longer than the request's own code runs on it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import anyio
import pytest
import trio
from opentelemetry.sdk.trace import TracerProvider

from icestream import tracing
from icestream.tracing.threads import local
from tests.tracing.traced import OTHER, TRACE, Listener

pytestmark = pytest.mark.usefixtures("started")


def trace_of_thread() -> str:
    """Of the calling thread now; "": it is in none."""
    context = local.thread.context if local.thread is not None else None
    return context[:16].hex() if context is not None else ""


def by_hand() -> str:
    with tracing.span(OTHER):
        return trace_of_thread()


def by_opentelemetry() -> str:
    with TracerProvider().get_tracer("test").start_as_current_span("inner"):
        return trace_of_thread()


@pytest.mark.parametrize("inner", [by_hand, by_opentelemetry])
def test_a_span_in_a_copied_context_leaves_the_thread_where_it_was(inner: Callable[[], str]) -> None:
    with ThreadPoolExecutor(1) as pool:
        with tracing.span(TRACE):
            assert pool.submit(copy_context().run, inner).result() != ""
        assert pool.submit(trace_of_thread).result() == ""


def pieces() -> Iterator[str]:
    with tracing.span(TRACE):
        yield trace_of_thread()
        yield ""


def test_a_generator_run_step_by_step_on_worker_threads_leaves_none_in_its_span() -> None:
    async def steps() -> None:
        for run in (anyio.to_thread.run_sync, asyncio.to_thread):
            assert await run(next, pieces()) == TRACE
            assert {await run(trace_of_thread) for _ in range(10)} == {""}

    asyncio.run(steps())


def test_coroutines_of_trio_are_in_no_context_rather_than_in_anothers() -> None:
    seen: set[str] = set()

    async def request(trace_id: str) -> None:
        with tracing.span(trace_id):
            for _ in range(3):
                await trio.sleep(0)
                seen.add(trace_of_thread())

    async def requests() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(request, TRACE)
            nursery.start_soon(request, OTHER)

    trio.run(requests)
    assert seen == {""}
    with tracing.span(TRACE):
        assert trace_of_thread() == TRACE


def test_a_span_without_a_name_breaks_nothing(started: Listener) -> None:
    with tracing.span(TRACE, name=None):  # type: ignore[arg-type]
        pass
    tracing.stop()
    assert [span.name for span in started.take().spans] == ["None"]


def test_requests_with_long_names_are_sent_in_datagrams_that_collectors_take(started: Listener) -> None:
    """All at once: more than a datagram may hold."""
    requests = 1000

    def work() -> None:
        for number in range(requests):
            with tracing.span(f"{number + 1:032x}", name=f"GET /{number:0250d}"):
                pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    tracing.stop()
    taken = started.take()
    assert len({span.name for span in taken.spans}) == requests
    assert len(taken.rows) >= requests
    assert taken.dropped == 0
