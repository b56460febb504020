"""Takes OTLP profiles and spans in, however they came, and says what was not taken."""

import asyncio
from collections.abc import Callable

from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from gateway.intake import Intake
from gateway.readers.otlp import Arrival, read_otlp
from gateway.readers.otlp_attributes import Attributes
from gateway.readers.otlp_spans import rejection

_MAX_REASONS = 3


async def take_profiles(
    intake: Intake,
    parse: Callable[[], ProfilesData],
    max_series: int,
    arrival: Arrival | None = None,
    labels: Attributes | None = None,
) -> ExportProfilesServiceResponse:
    """Parses and reads in a thread. Raises Refused."""
    found = await asyncio.to_thread(lambda: read_otlp(parse(), max_series, arrival, labels))
    dropped, refused = await intake.take_each(found, "otlp")
    answer = ExportProfilesServiceResponse()
    texts = [f"{count} {what} dropped" for what, count in sorted(dropped.items())]
    if refused or texts:
        answer.partial_success.rejected_profiles = len(refused)
        answer.partial_success.error_message = "; ".join(texts + sorted(set(refused))[:_MAX_REASONS])
    return answer


async def take_spans(intake: Intake, parse: Callable[[], TracesData]) -> ExportTraceServiceResponse:
    """Parses in a thread. Raises Refused."""
    rejected = await intake.take_spans(await asyncio.to_thread(parse), "otlp")
    answer = ExportTraceServiceResponse()
    if rejected:
        answer.partial_success.rejected_spans = rejected.total()
        answer.partial_success.error_message = rejection(rejected)
    return answer
