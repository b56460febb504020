"""OTLP traces as activity batches: what is taken, what is not, and that they pass the checks of readers."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1 import trace_pb2

from gateway.encode import Encoded
from gateway.encode_spans import encode_spans
from gateway.errors import Refused
from gateway.readers import otlp_json
from gateway.readers.otlp_spans import MAX_DURATION_NS, OtlpSpans, SentSpans, parse_spans, read_spans, rejection
from icestream.labels.operations import MANY_OPERATIONS, OperationNames
from icestream.labels.request_labels import MOST_SETS, NO_LABELS, RequestLabels
from icestream.messages.activity import ActivityColumns, decode_activity
from icestream.messages.plausible import TimeLimits
from icestream.times import DAY_NS, HOUR_NS
from icestream.topics import MAX_MESSAGE_BYTES
from icestream.v1.activity_pb2 import Span
from tests.gateway.spans import CHILD, ROOT, TRACE, span, traces

NOW = time.time_ns() // HOUR_NS * HOUR_NS
TIMES = TimeLimits(late_ns=7 * DAY_NS, early_ns=2 * HOUR_NS).collected(NOW // 10**6)


def encode(group: SentSpans, names: OperationNames | None = None, sets: RequestLabels = NO_LABELS) -> Encoded:
    return encode_spans(group, TIMES, names or OperationNames(1000), sets)


def read(*spans: trace_pb2.Span, **attributes: str) -> OtlpSpans:
    return read_spans(parse_spans(traces(*spans, **attributes).SerializeToString()), TIMES)


def test_a_span_keeps_its_names_parent_service_and_times() -> None:
    (group,) = read(span(NOW, CHILD, ROOT, name="render"), host_id="machine").groups
    assert group.host_id == "machine"
    assert group.spans == [
        Span(
            trace_id=TRACE, span_id=CHILD, parent_span_id=ROOT, name="render", service="shop", start_unix_nano=NOW,
            end_unix_nano=NOW + 10**8,
        )
    ]  # fmt: skip


@pytest.mark.parametrize(("code", "status"), [(0, 0), (1, 1), (2, 2), (3, 0), (-1, 0), (2**31 - 1, 0)])
def test_a_span_keeps_a_status_that_is_known(code: int, status: int) -> None:
    (group,) = read(span(NOW, status=trace_pb2.Status(code=code, message="no stock"))).groups  # type: ignore[arg-type]
    assert group.spans[0].status == status
    encode(group)


@pytest.mark.parametrize("parent", [b"", bytes(8)])
def test_a_parent_of_zeros_is_none(parent: bytes) -> None:
    assert read(span(NOW, ROOT, parent)).groups[0].spans[0].parent_span_id == b""


@pytest.mark.parametrize(
    ("said", "is_entry"),
    [
        ({"parent_span_id": b""}, True),
        ({"flags": 0x301}, True),
        ({"flags": 0x101}, False),
        ({"flags": 0x101, "kind": trace_pb2.Span.SPAN_KIND_SERVER}, False),
        ({"flags": 1, "kind": trace_pb2.Span.SPAN_KIND_CONSUMER}, True),
        ({"flags": 1, "kind": trace_pb2.Span.SPAN_KIND_CLIENT}, False),
    ],
)
def test_a_span_without_a_parent_in_its_process_names_the_operation(said: dict[str, object], is_entry: bool) -> None:
    (group,) = read(span(NOW, CHILD, name="GET /", **({"parent_span_id": ROOT} | said))).groups
    assert group.spans[0].operation == ("GET /" if is_entry else "")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"trace_id": bytes(16)}, "without valid IDs"),
        ({"trace_id": b"short"}, "without valid IDs"),
        ({"span_id": b""}, "without valid IDs"),
        ({"parent_span_id": b"1234"}, "without valid IDs"),
        ({"start_time_unix_nano": 0}, "with implausible times"),
        ({"end_time_unix_nano": 2**64 - 1}, "with implausible times"),
        ({"start_time_unix_nano": NOW - 8 * DAY_NS}, "with implausible times"),
        ({"end_time_unix_nano": NOW - 1}, "that end before they start or last longer than 23 hours"),
        ({"start_time_unix_nano": NOW - MAX_DURATION_NS}, "that end before they start or last longer than 23 hours"),
    ],
)
def test_a_span_that_is_wrong_is_rejected_and_the_others_are_taken(wrong: dict[str, object], why: str) -> None:
    found = read(span(NOW, **wrong), span(NOW, CHILD))
    assert found.rejected == {why: 1}
    assert [one.span_id for group in found.groups for one in group.spans] == [CHILD]


def test_spans_of_other_days_pass_too() -> None:
    found = read(*(span(NOW - hours * HOUR_NS, end_time_unix_nano=NOW) for hours in (0, 22)), span(NOW - 6 * DAY_NS))
    assert len(found.groups) == 3
    assert not found.rejected
    for group in found.groups:
        encode(group)


def test_many_spans_are_several_messages_and_all_of_them_are_there() -> None:
    sent = [span(NOW, number.to_bytes(8, "big"), name="n" * 1000) for number in range(1, 5001)]
    (group,) = read(*sent).groups
    encoded = encode(group)
    assert len(encoded.messages) > 1
    assert max(map(len, encoded.messages)) <= MAX_MESSAGE_BYTES
    decoded = [decode_activity(message, TIMES) for message in encoded.messages]
    assert b"".join(one.spans.span_id.tobytes() for one in decoded) == b"".join(one.span_id for one in sent)
    assert {name for one in decoded for name in one.spans.name.texts()} == {"n" * 256}
    assert len({one.id.collector for one in decoded}) == len(decoded)


def test_spans_that_come_again_are_the_same_batch_and_others_are_not() -> None:
    def ids(*spans: trace_pb2.Span) -> list[str]:
        return [decode_activity(m).id.collector for group in read(*spans).groups for m in encode(group).messages]

    assert ids(span(NOW)) == ids(span(NOW))
    assert ids(span(NOW)) != ids(span(NOW + 1))


def test_a_service_has_some_operations_and_what_comes_again_keeps_its_batch() -> None:
    def sent(names: OperationNames, count: int, name: str, service_name: str) -> list[ActivityColumns]:
        spans = [span(NOW, number.to_bytes(8, "big"), name=f"{name} {number}") for number in range(1, count + 1)]
        inner = span(NOW, CHILD, ROOT, name="render")
        groups = read(*spans, inner, service_name=service_name).groups
        return [decode_activity(m, TIMES) for group in groups for m in encode(group, names).messages]

    names = OperationNames(2)
    (first,) = sent(names, 4, "GET", "shop")
    assert first.spans.operation.texts() == ["GET 1", "GET 2", MANY_OPERATIONS, MANY_OPERATIONS, ""]
    assert first.spans.name.texts() == ["GET 1", "GET 2", "GET 3", "GET 4", "render"]
    assert names.replaced == 2
    (other,) = sent(names, 1, "POST", "cart")
    assert other.spans.operation.texts() == ["POST 1", ""]
    elsewhere = OperationNames(2)  # another gateway, which has seen others before
    sent(elsewhere, 2, "POST", "shop")
    (again,) = sent(elsewhere, 4, "GET", "shop")
    assert again.spans.operation.texts() == [*[MANY_OPERATIONS] * 4, ""]
    assert again.id == first.id
    parts = sent(names, 16_000, "", "shop")
    assert len(parts) > 1  # longer names still fit into messages
    assert {op for part in parts for op in part.spans.operation.texts()} == {MANY_OPERATIONS, ""}


def test_operations_are_counted_right_by_several_threads() -> None:
    names = OperationNames(100)
    with ThreadPoolExecutor(8) as pool:
        each = pool.map(lambda _: [names.limited("shop", f"GET {i % 300}") for i in range(3000)], range(8))
        answers = [answer for some in each for answer in some]
    assert len(set(answers)) == 101
    assert names.replaced == answers.count(MANY_OPERATIONS) == 16_000


def test_what_is_no_trace_is_refused() -> None:
    with pytest.raises(Refused, match="no OTLP traces"):
        parse_spans(b"\xff\xff")


@given(
    st.lists(
        st.builds(
            trace_pb2.Span,
            trace_id=st.sampled_from([TRACE, b"", bytes(16), b"x" * 17]),
            span_id=st.sampled_from([ROOT, b"", bytes(8), b"x" * 9]),
            parent_span_id=st.sampled_from([CHILD, b"", bytes(8), b"x"]),
            name=st.text(max_size=300),
            start_time_unix_nano=st.integers(0, 2**64 - 1) | st.integers(NOW - 9 * DAY_NS, NOW + DAY_NS),
            end_time_unix_nano=st.integers(0, 2**64 - 1) | st.integers(NOW - 9 * DAY_NS, NOW + DAY_NS),
        ),
        max_size=8,
    )
)
def test_whatever_comes_is_taken_or_counted(spans: list[trace_pb2.Span]) -> None:
    found = read(*spans)
    encoded = [encode(group) for group in found.groups]  # raises if a reader would refuse it
    assert sum(one.samples for one in encoded) + found.rejected.total() == len(spans)


def test_a_resource_with_absurdly_many_attributes_refuses_its_own_spans_only() -> None:
    data = traces(span(NOW))
    bad = data.resource_spans.add()
    bad.CopyFrom(data.resource_spans[0])
    for number in range(1001):
        bad.resource.attributes.add(key=f"a{number}")
    found = read_spans(data, TIMES)
    assert [len(group.spans) for group in found.groups] == [1]
    assert list(found.rejected.values()) == [1]
    assert "at most 1000" in rejection(found.rejected)


@pytest.mark.parametrize("name", ["traceId", "spanId", "parentSpanId"])
@pytest.mark.parametrize("text", ["", "no-hex", "0af7651916cd43dd8448eb211c80319c00"])
def test_a_bad_id_in_json_costs_its_span_only(name: str, text: str) -> None:
    good = {"traceId": TRACE.hex(), "spanId": ROOT.hex(), "startTimeUnixNano": NOW, "endTimeUnixNano": NOW + 1}
    bad = good | {"spanId": CHILD.hex(), name: text}
    body = {"resourceSpans": [{"scopeSpans": [{"spans": [good, bad]}]}]}
    found = read_spans(otlp_json.parse_spans(json.dumps(body).encode()), TIMES)
    is_root = (name, text) == ("parentSpanId", "")
    assert [one.span_id for group in found.groups for one in group.spans] == [ROOT, CHILD][: 1 + is_root]
    assert found.rejected == ({} if is_root else {"without valid IDs": 1})


@pytest.mark.slow
def test_spans_have_labels_of_their_resource_and_of_100_000_versions_few_are_kept() -> None:
    sets = RequestLabels(["service_version", "pod"])
    data = traces(span(NOW), k8s_pod_name="shop-1", service_version="1.1")
    (group,) = read_spans(parse_spans(data.SerializeToString()), TIMES).groups
    (batch,) = [decode_activity(message, TIMES) for message in encode(group, sets=sets).messages]
    assert set(batch.spans.labels.texts()) == {'{"pod":"shop-1","service_version":"1.1"}'}
    kept = set()
    for number in range(100_000):
        labels = (("service", "shop"), ("service_version", f"{number}"))
        (message,) = encode(SentSpans("host", group.spans[:1], labels), sets=sets).messages if number < 2000 else (b"",)
        kept.add(decode_activity(message, TIMES).spans.labels.text(0) if message else sets.choose(labels))
    assert len(kept - {""}) == MOST_SETS - 1
    assert sets.emptied == 100_001 - MOST_SETS
