"""Spans by hand."""

import asyncio
import contextlib
import threading
import time
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from icestream import tracing
from tests.tracing.traced import OTHER, TRACE, Listener, burn


@pytest.mark.parametrize("wrong", ["", "ab", "0" * 32, "g" * 32, TRACE + "00", TRACE[:31] + " ", " ".join(["ab"] * 11)])
def test_a_trace_id_that_is_none_is_refused_by_name(wrong: str) -> None:
    with pytest.raises(ValueError, match="trace_id: expected 32 hexadecimal digits"):
        tracing.span(wrong)


@pytest.mark.parametrize("wrong", ["", "0" * 16, "b7ad6b716920333", "xyz"])
def test_a_span_id_that_is_none_is_refused_by_name(wrong: str) -> None:
    with pytest.raises(ValueError, match="span_id: expected 16 hexadecimal digits"):
        tracing.span(TRACE, wrong)


@pytest.mark.parametrize("wrong", [7, int("1" * 32), TRACE.encode(), bytes.fromhex(TRACE), None, [*TRACE], UUID(TRACE)])
def test_a_trace_id_of_a_wrong_type_is_refused(wrong: Any) -> None:
    for span_id in (None, "b7ad6b7169203331"):
        with pytest.raises(ValueError, match="trace_id: expected 32 hexadecimal digits") as refused:
            tracing.span(wrong, span_id)
        assert repr(wrong)[:80] in str(refused.value)


@pytest.mark.parametrize("wrong", [0, int("1" * 16), b"", b"b7ad6b7169203331", False, []])
def test_a_span_id_of_a_wrong_type_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="span_id: expected 16 hexadecimal digits") as refused:
        tracing.span(TRACE, wrong)
    assert repr(wrong) in str(refused.value)


def test_identifiers_may_be_members_of_an_enumeration_and_have_upper_case_digits() -> None:
    class Known(str, Enum):  # noqa: UP042 - an f-string shows its name, not its text
        TRACE = "0AF7651916CD43DD8448EB211C80319C"
        SPAN = "B7AD6B7169203331"

    made = tracing.span(Known.TRACE, Known.SPAN)
    assert (made.trace_id, made.span_id) == (TRACE, "b7ad6b7169203331")


def test_span_ids_are_made_where_none_is_given() -> None:
    made = {tracing.span(TRACE).span_id for _ in range(1000)}
    assert len(made) == 1000
    assert all(len(span_id) == 16 for span_id in made)


def test_spans_are_reported_with_names_parents_and_times(started: Listener) -> None:
    before = time.monotonic_ns()
    with tracing.span(TRACE, name="outer", parent_id="b7ad6b7169203331") as outer:
        with tracing.span(TRACE, name="inner") as inner:
            pass
        with tracing.span(OTHER, name="elsewhere"):
            pass
    after = time.monotonic_ns()
    tracing.stop()
    spans = {span.name: span for span in started.take().spans}
    assert spans["outer"].span_id.hex() == outer.span_id
    assert spans["outer"].trace_id.hex() == TRACE
    assert spans["outer"].parent_span_id.hex() == "b7ad6b7169203331"
    assert spans["inner"].span_id.hex() == inner.span_id
    assert spans["inner"].parent_span_id.hex() == outer.span_id
    assert spans["elsewhere"].parent_span_id == b""
    assert {span.service for span in spans.values()} == {"tested"}
    for span in spans.values():
        assert before <= span.start_unix_nano <= span.end_unix_nano <= after


def test_an_exception_that_leaves_a_span_is_its_error(started: Listener) -> None:
    for name, raised in (("failed", ValueError), ("cancelled", asyncio.CancelledError), ("exits", SystemExit)):
        with contextlib.suppress(raised), tracing.span(TRACE, name=name):
            with tracing.span(TRACE, name=f"{name} within"), contextlib.suppress(KeyError):
                raise KeyError
            raise raised
    tracing.stop()
    assert {span.name: span.status for span in started.take().spans if span.status} == {"failed": 2}


def test_a_span_ends_when_its_block_raises(started: Listener) -> None:
    with pytest.raises(RuntimeError), tracing.span(TRACE, name="fails"):
        raise RuntimeError
    burned = burn(5)
    tracing.stop()
    heard = started.take()
    assert [span.name for span in heard.spans] == ["fails"]
    assert heard.thread_cpu_ns(TRACE) < burned


def test_names_longer_than_the_limit_are_cut(started: Listener) -> None:
    with tracing.span(TRACE, name="ü" * 5000):
        pass
    tracing.stop()
    assert started.take().spans[0].name == "ü" * 128


def test_entering_a_span_within_itself_does_nothing(started: Listener) -> None:
    outer, inner = tracing.span(TRACE, name="outer"), tracing.span(TRACE, name="inner")
    with outer, inner, outer, inner:
        pass
    with tracing.span(TRACE, name="next"):
        pass
    tracing.stop()
    spans = started.take().spans
    assert [(span.name, span.operation) for span in spans] == [("inner", ""), ("outer", "outer"), ("next", "next")]


def test_a_span_that_is_used_again_belongs_to_where_it_is_entered(started: Listener) -> None:
    again = tracing.span(TRACE, name="again")
    with tracing.span(TRACE, name="request"), again:
        pass
    with again:
        burned = burn(5)
    tracing.stop()
    heard = started.take()
    assert [(span.name, span.operation) for span in heard.spans] == [
        ("again", ""),
        ("request", "request"),
        ("again", "again"),
    ]
    assert heard.thread_cpu_ns(TRACE) >= burned


def test_a_span_that_is_used_again_in_a_task_that_it_began_loses_no_activity(started: Listener) -> None:
    async def outlives(ended: asyncio.Event, entry: tracing.Span) -> None:
        await ended.wait()
        with entry:
            burn(5)

    async def main() -> None:
        ended, entry = asyncio.Event(), tracing.span(TRACE, name="entry")
        with entry:
            tasks = [asyncio.create_task(outlives(ended, entry))]
            with tracing.span(TRACE):
                tasks.append(asyncio.create_task(outlives(ended, entry)))
        ended.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    tracing.stop()
    assert [span.name for span in started.take().spans] == ["", "entry", "entry", "entry"]


def test_before_start_and_after_stop_spans_do_nothing(listener: Listener) -> None:
    with tracing.span(TRACE, name="before"):
        tracing.start(service="tested", socket=listener.path)
    tracing.stop()
    with tracing.span(TRACE, name="after"):
        burn(1)
    assert listener.take().rows == []
    assert listener.take().spans == []


def test_a_span_that_is_open_at_stop_is_sent_up_to_there(started: Listener) -> None:
    before = time.thread_time_ns()
    with tracing.span(TRACE):
        burned = burn(20)
        tracing.stop()
        spent = time.thread_time_ns() - before
        burn(20)
    assert burned <= started.take().thread_cpu_ns(TRACE) <= spent


def test_start_again_goes_on(started: Listener) -> None:
    tracing.start(service="other")
    assert tracing.status().service == "tested"
    tracing.stop()
    tracing.stop()
    assert not tracing.status().started
    tracing.start(service="again", socket=started.path)
    with tracing.span(TRACE):
        burned = burn(10)
    tracing.stop()
    assert started.take().thread_cpu_ns(TRACE) >= burned
    assert "again" in started.receiver.services().values()


def test_a_generator_closed_in_another_context_leaves_the_thread_where_it_is(started: Listener) -> None:
    async def rows():  # type: ignore[no-untyped-def]
        with tracing.span(TRACE):
            yield 1

    async def main() -> None:
        generator = rows()
        await anext(generator)
        await asyncio.create_task(generator.aclose())
        burn(10)

    asyncio.run(main())
    thread = threading.Thread(target=burn, args=(1,))
    thread.start()
    thread.join()
