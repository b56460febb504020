"""A thread is in no request longer than the request's own code runs on it."""

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context

import anyio
import pytest
import trio
import uvloop
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from icestream import tracing
from icestream.tracing.threads import local
from tests.tracing.traced import OTHER, TRACE, Listener
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("started")


def trace_of_thread() -> str:
    """The trace of the calling thread now; "": it is in none."""
    context = local.thread.context if local.thread is not None else None
    return context.record[:16].hex() if context is not None else ""


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


def of_opentelemetry(sampler: Sampler) -> contextlib.AbstractContextManager[object]:
    return TracerProvider(sampler=sampler).get_tracer("test").start_as_current_span("GET /a")


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize(
    "request_of",
    [lambda: tracing.span(OTHER), lambda: of_opentelemetry(ALWAYS_ON), lambda: of_opentelemetry(ALWAYS_OFF)],
    ids=["by hand", "OpenTelemetry", "OpenTelemetry, not sampled"],
)
def test_a_connection_works_no_longer_for_the_request_that_opened_it(
    run: Callable[[Coroutine[None, None, None]], None],
    request_of: Callable[[], contextlib.AbstractContextManager[object]],
) -> None:
    seen: list[str] = []

    class Connection(asyncio.Protocol):
        def data_received(self, _: bytes) -> None:
            seen.append(trace_of_thread())
            self.answered.set()

        async def ask(self, transport: asyncio.Transport) -> None:
            self.answered = asyncio.Event()
            transport.write(b"question")
            await self.answered.wait()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while read := await reader.read(100):
            writer.write(read)
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        loop, (_, port) = asyncio.get_running_loop(), server.sockets[0].getsockname()
        with request_of():
            with tracing.span(OTHER):  # one within the request is over earlier
                transport, connection = await loop.create_connection(Connection, "127.0.0.1", port)
            await connection.ask(transport)
        with tracing.span(TRACE):
            await connection.ask(transport)
        await connection.ask(transport)
        transport.close()
        server.close()

    run(main())
    assert seen[1:] == ["", ""]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_task_that_outlives_its_request_works_for_none_except_in_spans_of_its_own(
    run: Callable[[Coroutine[None, None, None]], None],
) -> None:
    async def outlives(ended: asyncio.Event) -> None:
        await asyncio.sleep(0)
        assert trace_of_thread() == OTHER
        await ended.wait()
        assert trace_of_thread() == ""
        with tracing.span(OTHER):
            await asyncio.sleep(0)
            assert trace_of_thread() == OTHER
            assert await asyncio.to_thread(trace_of_thread) == OTHER
        assert trace_of_thread() == ""
        assert await asyncio.to_thread(trace_of_thread) == ""
        assert await anyio.to_thread.run_sync(trace_of_thread) == ""

    async def main() -> None:
        ended = asyncio.Event()
        with tracing.span(OTHER):
            with tracing.span(OTHER):
                task = asyncio.create_task(outlives(ended))
            await asyncio.sleep(0.01)
        ended.set()
        await task

    run(main())


def test_spans_that_follow_each_other_do_not_keep_those_before_them() -> None:
    def spans() -> int:
        gc.collect()
        return sum(isinstance(each, tracing.Span) for each in gc.get_objects())

    async def main() -> None:
        done = asyncio.Event()

        def work(rest: int) -> None:
            with tracing.span(TRACE):  # begins in the context of the one before, as a timer does that sets the next one
                asyncio.get_running_loop().call_soon(work, rest - 1) if rest else done.set()
                kept[:] = [copy_context()]

        work(1000)
        await done.wait()

    kept: list[Context] = []
    before = spans()
    asyncio.run(main())
    wait_until(lambda: spans() <= before + 10)


def test_a_span_left_on_another_thread_than_it_was_entered_on_leaves_neither_in_it() -> None:
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        for _ in range(2):
            span = tracing.span(TRACE)
            one.submit(span.__enter__).result()
            assert one.submit(trace_of_thread).result() == TRACE
            other.submit(span.__exit__, None, None, None).result()
            assert other.submit(trace_of_thread).result() == ""
            assert one.submit(trace_of_thread).result() == ""
            assert one.submit(by_hand).result() == OTHER


def test_generators_that_take_turns_leave_the_thread_in_the_span_that_is_open() -> None:
    def piece(trace_id: str) -> Generator[None, None, None]:
        with tracing.span(trace_id):
            yield

    one, other = piece(TRACE), piece(OTHER)
    next(one)
    next(other)
    one.close()
    assert trace_of_thread() == OTHER
    other.close()
    assert trace_of_thread() == ""
    assert by_hand() == OTHER
    assert trace_of_thread() == ""


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
