"""Names of spans: whatever an application gives, it has its own activity with some name, and loses nobody else's."""

import gc
import tracemalloc
from typing import Any

import pytest
from opentelemetry import trace

from icestream import tracing
from icestream.tracing import sender
from tests.tracing.test_opentelemetry import tracer
from tests.tracing.traced import OTHER, TRACE, Listener
from tests.waiting import PATIENCE_S

__all__ = ["tracer"]


class _Unhashable(str):
    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return self


class _Broken:
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("name", "sent"),
    [(None, "None"), (7, "7"), (["a"], "['a']"), (_Unhashable("GET /a"), "GET /a"), ("\ud800", "?")],
    ids=["None", "int", "list", "kind of str", "surrogate"],
)
def test_a_name_of_any_kind_may_be_given_or_set(started: Listener, name: Any, sent: str) -> None:
    with tracing.span(OTHER, name="bystander"), tracing.span(TRACE, name=name):
        pass
    with tracing.span(TRACE, name="HTTP") as span:
        span.name = name
    tracing.stop()
    assert sorted(span.name for span in started.take().spans) == sorted(["bystander", sent, sent])


def test_what_has_no_text_is_refused_where_it_is_set(started: Listener) -> None:
    with tracing.span(OTHER, name="bystander"):
        pass
    with tracing.span(TRACE, name="HTTP") as span, pytest.raises(RuntimeError):
        span.name = _Broken()  # type: ignore[assignment]
    tracing.stop()
    assert sorted(span.name for span in started.take().spans) == ["HTTP", "bystander"]


def test_of_a_long_name_no_more_is_kept_than_is_sent(
    listener: Listener, tracer: trace.Tracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "PERIOD_SECONDS", PATIENCE_S)  # all waits to be sent
    tracing.start(service="tested", socket=listener.path)
    long = "x" * 100_000
    with tracing.span(TRACE):
        tracer.start_span("first").end()
    tracemalloc.start()
    for number in range(100):
        with tracing.span(TRACE, name=f"given {number} {long}"), tracing.span(TRACE) as span:
            span.name = f"set {number} {long}"
        tracer.start_span(f"OpenTelemetry's {number} {long}").end()
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1_000_000
    tracing.stop()
    assert {len(span.name) for span in listener.take().spans if span.name[-1:] == "x"} == {256}
