"""Takes OTLP profiles and spans in, however they came, and says what was not taken."""

from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from gateway.intake import Intake
from gateway.readers import otlp_json
from gateway.readers.otlp import Arrival, parse_profiles, read_otlp
from gateway.readers.otlp_attributes import Attributes
from gateway.readers.otlp_spans import SPAN_BYTES, parse_spans, rejection
from gateway.reading_memory import PROFILE_ELEMENT_BYTES, Reading, json_elements, protobuf_elements
from gateway.reading_threads import in_reading_thread
from gateway.sent_profile import SentProfiles

_MAX_REASONS = 3


async def take_profiles(
    intake: Intake,
    reading: Reading,
    body: bytes,
    max_series: int,
    is_json: bool = False,
    arrival: Arrival | None = None,
    labels: Attributes | None = None,
) -> ExportProfilesServiceResponse:
    """Parses and reads in a thread. Raises Refused."""

    def read() -> SentProfiles:
        if is_json:
            data = otlp_json.parse_profiles(reading.before_reading(body, json_elements))
        else:
            data = parse_profiles(reading.before_reading(body, protobuf_elements, PROFILE_ELEMENT_BYTES))
        return read_otlp(data, max_series, arrival, labels, reading.hold)

    dropped, refused = await intake.take_each(await in_reading_thread(read), "otlp")
    answer = ExportProfilesServiceResponse()
    texts = [f"{count} {what} dropped" for what, count in sorted(dropped.items())]
    if refused or texts:
        answer.partial_success.rejected_profiles = len(refused)
        answer.partial_success.error_message = "; ".join(texts + sorted(set(refused))[:_MAX_REASONS])
    return answer


async def take_spans(
    intake: Intake, reading: Reading, body: bytes, is_json: bool = False, format_name: str = "otlp"
) -> ExportTraceServiceResponse:
    """Parses in a thread. Raises Refused."""
    parse, elements = (otlp_json.parse_spans, json_elements) if is_json else (parse_spans, protobuf_elements)

    def read() -> TracesData:
        data = parse(reading.before_reading(body, elements))
        reading.hold(SPAN_BYTES * sum(len(scope.spans) for of in data.resource_spans for scope in of.scope_spans))
        return data

    rejected = await intake.take_spans(await in_reading_thread(read), format_name)
    answer = ExportTraceServiceResponse()
    if rejected:
        answer.partial_success.rejected_spans = rejected.total()
        answer.partial_success.error_message = rejection(rejected)
    return answer
