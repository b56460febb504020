"""Takes OTLP profiles and spans in, however they came, and says what was not taken."""

import asyncio

from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from gateway.intake import Intake
from gateway.readers import otlp_json
from gateway.readers.otlp import Arrival, parse_profiles, read_otlp
from gateway.readers.otlp_attributes import Attributes
from gateway.readers.otlp_spans import parse_spans, rejection
from gateway.reading_memory import json_elements, protobuf_elements

_MAX_REASONS = 3


async def take_profiles(
    intake: Intake,
    body: bytes,
    max_series: int,
    is_json: bool = False,
    arrival: Arrival | None = None,
    labels: Attributes | None = None,
) -> ExportProfilesServiceResponse:
    """Parses and reads in a thread. Raises Refused."""
    parse, elements = (otlp_json.parse_profiles, json_elements) if is_json else (parse_profiles, protobuf_elements)
    with intake.memory.request() as request:
        found = await asyncio.to_thread(
            lambda: read_otlp(parse(request.before_reading(body, elements)), max_series, arrival, labels)
        )
        dropped, refused = await intake.take_each(found, "otlp")
    answer = ExportProfilesServiceResponse()
    texts = [f"{count} {what} dropped" for what, count in sorted(dropped.items())]
    if refused or texts:
        answer.partial_success.rejected_profiles = len(refused)
        answer.partial_success.error_message = "; ".join(texts + sorted(set(refused))[:_MAX_REASONS])
    return answer


async def take_spans(
    intake: Intake, body: bytes, is_json: bool = False, format_name: str = "otlp"
) -> ExportTraceServiceResponse:
    """Parses in a thread. Raises Refused."""
    parse, elements = (otlp_json.parse_spans, json_elements) if is_json else (parse_spans, protobuf_elements)
    with intake.memory.request() as request:
        data = await asyncio.to_thread(lambda: parse(request.before_reading(body, elements)))
        rejected = await intake.take_spans(data, format_name)
    answer = ExportTraceServiceResponse()
    if rejected:
        answer.partial_success.rejected_spans = rejected.total()
        answer.partial_success.error_message = rejection(rejected)
    return answer
