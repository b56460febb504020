"""OTLP traces to send."""

from collections.abc import Iterable

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, TracesData

TRACE = bytes.fromhex("4bf92f3577b34da6a3ce929d0e0e4736")
ROOT, CHILD = bytes.fromhex("00f067aa0ba902b7"), bytes.fromhex("b7ad6b7169203331")


def span(start: int, span_id: bytes = ROOT, parent: bytes = b"", **more: object) -> Span:
    """A span of 100 ms; `more` are other fields."""
    given: dict[str, object] = {
        "trace_id": TRACE, "span_id": span_id, "parent_span_id": parent, "name": "GET /checkout",
        "start_time_unix_nano": start, "end_time_unix_nano": start + 10**8,
    }  # fmt: skip
    return Span(**given | more)  # type: ignore[arg-type]


def resource_spans(spans: Iterable[Span], **attributes: str) -> ResourceSpans:
    """`attributes` of the resource have _ for the dots of their names."""
    pairs = [
        KeyValue(key=name.replace("_", "."), value=AnyValue(string_value=text)) for name, text in attributes.items()
    ]
    return ResourceSpans(resource=Resource(attributes=pairs), scope_spans=[ScopeSpans(spans=spans)])


def traces(*spans: Span, **attributes: str) -> TracesData:
    return TracesData(
        resource_spans=[resource_spans(spans, **{"service_name": "shop", "host_name": "h1"} | attributes)]
    )
