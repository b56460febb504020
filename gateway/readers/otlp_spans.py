"""Reads OTLP traces (opentelemetry-proto, package trace.v1): the spans that people have already."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2

from gateway.errors import Refused, bad_spans, too_many
from gateway.labels import host_id
from gateway.readers import valid_texts
from gateway.readers.otlp_attributes import attributes, labels_of
from icestream.messages.activity import STATUSES
from icestream.messages.checks import MAX_ID, Labels
from icestream.messages.plausible import Times
from icestream.times import HOUR_NS
from icestream.v1.activity_pb2 import Span

MAX_NAME = 256
"""Characters of a name that are kept, as of spans that applications send to collectors."""
MAX_DURATION_NS = 23 * HOUR_NS
"""Longer spans are not taken, so that the times of a message with the spans of an hour lie within a day."""

MAX_RESOURCES = 100_000
"""The most resources of a request: each takes microseconds."""
SPAN_BYTES = 700
"""The memory that a span takes while it is made into a message."""

_NONE = (b"", bytes(8))


@dataclass(frozen=True)
class SentSpans:
    """Spans of one resource that began within one hour."""

    host_id: str
    spans: list[Span]
    labels: Labels
    """Those of the resource."""


@dataclass
class OtlpSpans:
    """What a request has: the spans that can be taken, and how many others there are, by the reason."""

    groups: list[SentSpans] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)


def parse_spans(data: bytes) -> trace_pb2.TracesData:
    """Raises Refused."""
    try:
        return valid_texts.parse(trace_pb2.TracesData, data)
    except DecodeError as error:
        raise bad_spans(f"no OTLP traces: {error}") from None


def read_spans(data: trace_pb2.TracesData, times: Times) -> OtlpSpans:
    """Reads spans; `times` are those that they may have. Raises Refused where there are too many resources."""
    if len(data.resource_spans) > MAX_RESOURCES:
        raise too_many(MAX_RESOURCES, f"resources, got {len(data.resource_spans)}")
    found = OtlpSpans()
    for resource in data.resource_spans:
        try:
            host, labels = _host_and_labels(resource.resource)
        except Refused as error:
            found.rejected[f"of a resource with bad {error.message}"] += sum(
                len(of.spans) for of in resource.scope_spans
            )
            continue
        service = dict(labels).get("service", "")
        hours: dict[int, list[Span]] = defaultdict(list)
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            if problem := _problem(span, times):
                found.rejected[problem] += 1
            else:
                hours[span.start_time_unix_nano // HOUR_NS].append(_converted(span, service))
        found.groups += [SentSpans(host, spans, labels) for spans in hours.values()]
    return found


def rejection(rejected: Counter[str]) -> str:
    """Returns in words why spans were not taken."""
    return "; ".join(f"{count} spans {why}" for why, count in sorted(rejected.items()))


def _host_and_labels(resource: Resource) -> tuple[str, Labels]:
    """Returns host ID and labels."""
    given = attributes(resource.attributes, [])
    labels = labels_of(given)
    host = given.get("host.id") or host_id(labels)
    return host.encode()[:MAX_ID].decode(errors="ignore"), labels


def _problem(span: trace_pb2.Span, times: Times) -> str:
    """Returns why a span cannot be taken, or ""."""
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    if not (_is_id(span.trace_id, 16) and _is_id(span.span_id, 8) and len(span.parent_span_id) in (0, 8)):
        return "without valid IDs"
    if not (times.first <= start <= times.last and times.first <= end <= times.last):
        return "with implausible times"
    if not 0 <= end - start <= MAX_DURATION_NS:
        return "that end before they start or last longer than 23 hours"
    return ""


def _is_id(value: bytes, size: int) -> bool:
    return len(value) == size and any(value)


def _is_entry(span: trace_pb2.Span) -> bool:
    """Whether a span is the first of its request in its service: it has no parent, or one in another process. If the
    SDK does not say where the parent is, the kind of the span decides."""
    if span.parent_span_id in _NONE:
        return True
    if span.flags & trace_pb2.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK:
        return bool(span.flags & trace_pb2.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
    return span.kind in (trace_pb2.Span.SPAN_KIND_SERVER, trace_pb2.Span.SPAN_KIND_CONSUMER)


def _converted(span: trace_pb2.Span, service: str) -> Span:
    name = span.name[:MAX_NAME]
    return Span(
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=b"" if span.parent_span_id in _NONE else span.parent_span_id,
        name=name,
        operation=name if _is_entry(span) else "",
        service=service,
        start_unix_nano=span.start_time_unix_nano,
        end_unix_nano=span.end_time_unix_nano,
        status=span.status.code if 0 <= span.status.code < len(STATUSES) else 0,
    )
