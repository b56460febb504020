"""Each context says which request it is part of: the entry span and its name."""

import asyncio
import threading

import numpy as np
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from icestream import tracing
from tests.tracing.test_opentelemetry import tracer
from tests.tracing.traced import OTHER, TRACE, Listener, burn

__all__ = ["tracer"]

CALLER = "b7ad6b7169203331"


def operations(listener: Listener) -> dict[str, tuple[str, str]]:
    """What each context with an interval has: span ID -> ID of the entry span, operation."""
    tracing.stop()
    listener.take()
    found = {}
    for intervals in listener.taken:
        spans, entries = (np.frombuffer(ids, "V8") for ids in (intervals.span_ids, intervals.entry_span_ids))
        for row in set(intervals.context.tolist()):
            operation = intervals.strings[int(intervals.operation[row])]
            found[spans[row].tobytes().hex()] = (entries[row].tobytes().hex(), operation)
    return found


def test_spans_by_hand_belong_to_the_first_one_of_their_trace(started: Listener) -> None:
    with tracing.span(TRACE, name="GET /a", parent_id=CALLER) as entry:
        burn(1)
        with tracing.span(TRACE, name="render") as inner:
            burn(1)
            with tracing.span(OTHER, name="another trace") as other:
                burn(1)
    found = operations(started)
    assert found[entry.span_id] == found[inner.span_id] == (entry.span_id, "GET /a")
    assert found[other.span_id] == (other.span_id, "another trace")
    named = {span.name: span.operation for span in started.heard.spans}
    assert named == {"GET /a": "GET /a", "render": "", "another trace": "another trace"}


def test_a_span_by_hand_may_get_its_name_when_the_route_is_known(started: Listener) -> None:
    with tracing.span(TRACE, name="HTTP") as entry, tracing.span(TRACE, name="route"):
        entry.name = "GET /a"
        burn(1)
    assert set(operations(started).values()) == {(entry.span_id, "GET /a")}


def test_tasks_and_threads_with_a_copied_context_stay_in_the_request(started: Listener) -> None:
    inner: list[tracing.Span] = []

    def work() -> None:
        with tracing.span(TRACE, name="in a thread") as span:
            inner.append(span)
            burn(1)

    async def task() -> None:
        with tracing.span(TRACE, name="in a task") as span:
            inner.append(span)
            burn(1)
            await asyncio.to_thread(work)

    async def handle() -> None:
        with tracing.span(TRACE, name="POST /b") as entry:
            inner.append(entry)
            await asyncio.gather(task(), task())

    asyncio.run(handle())
    found = operations(started)
    assert [found[span.span_id] for span in inner] == [(inner[0].span_id, "POST /b")] * 5


def test_a_nameless_entry_span_has_no_operation(started: Listener) -> None:
    with tracing.span(TRACE) as entry:
        burn(1)
    assert operations(started)[entry.span_id] == ("0" * 16, "")


def _id(span: trace.Span) -> str:
    return f"{span.get_span_context().span_id:016x}"


def test_spans_of_opentelemetry_belong_to_the_one_with_a_remote_parent(started: Listener, tracer: trace.Tracer) -> None:
    caller = trace.SpanContext(int(TRACE, 16), int(CALLER, 16), is_remote=True, trace_flags=trace.TraceFlags(1))
    incoming = trace.set_span_in_context(trace.NonRecordingSpan(caller))
    spans: list[trace.Span] = []

    def elsewhere(context: otel_context.Context) -> None:
        token = otel_context.attach(context)
        with tracer.start_as_current_span("in a thread") as span:
            spans.append(span)
            burn(1)
        otel_context.detach(token)

    with tracer.start_as_current_span("HTTP GET", context=incoming) as entry:
        spans.append(entry)
        burn(1)
        entry.update_name("GET /items/{id}")
        with tracer.start_as_current_span("SELECT") as inner:
            spans.append(inner)
            burn(1)
            thread = threading.Thread(target=elsewhere, args=[otel_context.get_current()])
            thread.start()
            thread.join()
    found = operations(started)
    assert [found[_id(span)] for span in spans] == [(_id(entry), "GET /items/{id}")] * 3
    assert {span.name: span.operation for span in started.heard.spans}["GET /items/{id}"] == "GET /items/{id}"
    assert [span.name for span in started.heard.spans if span.operation] == ["GET /items/{id}"]


def test_a_span_that_opentelemetry_does_not_sample_has_no_name_and_no_operation(
    started: Listener, tracer: trace.Tracer
) -> None:
    with TracerProvider(sampler=ALWAYS_OFF).get_tracer("never").start_as_current_span("GET /c") as span:
        burn(1)
    assert operations(started)[_id(span)] == ("0" * 16, "")
