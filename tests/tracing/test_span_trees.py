"""Spans in each other, by hand and of OpenTelemetry: a collector reads the parents and operations that are promised."""

import contextlib
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry import trace

from icestream import tracing
from icestream.tracing import sender
from tests.examples import examples
from tests.tracing.test_opentelemetry import tracer
from tests.tracing.test_operations import operations
from tests.tracing.traced import OTHER, TRACE, Heard, Listener
from tests.waiting import PATIENCE_S

__all__ = ["tracer"]

SENT = {"": "", "GET /a": "GET /a", "ü" * 300: "ü" * 128, "\ud800": "?"}
"""Names, and what is sent of them."""


@dataclass
class Node:
    """A span to enter. `trace`: "": the same as that of the span around it, or OpenTelemetry's choice."""

    by_hand: bool
    trace: str
    name: str
    later_name: str
    fails: bool
    within: "list[Node]" = field(default_factory=list)


class Entered(NamedTuple):
    trace_id: str
    span_id: str
    entry_id: str


class Expected(NamedTuple):
    name: str
    parent_id: str
    is_entry: bool
    failed: bool
    entry_id: str


names = st.sampled_from(sorted(SENT))
nodes = st.recursive(
    st.builds(Node, st.booleans(), st.sampled_from(["", TRACE, OTHER]), names, names, st.booleans()),
    lambda within: st.builds(
        Node,
        st.booleans(),
        st.sampled_from(["", TRACE, OTHER]),
        names,
        names,
        st.booleans(),
        st.lists(within, max_size=3),
    ),
    max_leaves=8,
)


@settings(max_examples=examples(1), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(trees=st.lists(nodes, max_size=3))
def test_a_collector_reads_parents_entries_names_and_errors_of_spans_in_each_other(
    listener: Listener, tracer: trace.Tracer, trees: list[Node]
) -> None:
    expected: dict[str, Expected] = {}
    listener.heard, listener.taken = Heard(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sender, "PERIOD_SECONDS", PATIENCE_S)  # all is sent at the end, with the last names
        tracing.start(service="tested", socket=listener.path)
        for tree in trees:
            _run(tree, tracer, None, None, expected)
        found = operations(listener)
    names_sent = {span_id: SENT[span.name] for span_id, span in expected.items()}
    named = {span_id: (span.entry_id, names_sent[span.entry_id]) for span_id, span in expected.items()}
    assert found == {span_id: known if known[1] else ("0" * 16, "") for span_id, known in named.items()}
    heard = {
        span.span_id.hex(): (span.name, span.parent_span_id.hex(), span.operation, span.status == 2)
        for span in listener.heard.spans
    }
    assert heard == {
        span_id: (names_sent[span_id], span.parent_id, names_sent[span_id] if span.is_entry else "", span.failed)
        for span_id, span in expected.items()
    }
    assert len(listener.heard.spans) == len(expected)


def _run(
    node: Node, tracer: trace.Tracer, above: Entered | None, otel: Entered | None, expected: dict[str, Expected]
) -> None:
    """`above`: the span around this one; `otel`: the one of OpenTelemetry around it."""
    with contextlib.suppress(RuntimeError):
        if node.by_hand:
            trace_id = node.trace or (above.trace_id if above else TRACE)
            with tracing.span(trace_id, name=node.name) as span:
                known = above if above is not None and above.trace_id == trace_id else None
                entered = Entered(trace_id, span.span_id, known.entry_id if known else span.span_id)
                _within(node, tracer, entered, otel, known.span_id if known else "", expected)
                span.name = node.later_name
                _fail(node)
        else:
            with tracer.start_as_current_span(node.name) as started:
                context = started.get_span_context()
                span_id = f"{context.span_id:016x}"
                entered = Entered(f"{context.trace_id:032x}", span_id, otel.entry_id if otel else span_id)
                _within(node, tracer, entered, entered, otel.span_id if otel else "", expected)
                started.update_name(node.later_name)
                _fail(node)


def _within(
    node: Node,
    tracer: trace.Tracer,
    entered: Entered,
    otel: Entered | None,
    parent_id: str,
    expected: dict[str, Expected],
) -> None:
    is_entry = entered.entry_id == entered.span_id
    expected[entered.span_id] = Expected(node.later_name, parent_id, is_entry, node.fails, entered.entry_id)
    for inner in node.within:
        _run(inner, tracer, entered, otel, expected)


def _fail(node: Node) -> None:
    if node.fails:
        raise RuntimeError
