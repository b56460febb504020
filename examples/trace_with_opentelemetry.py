"""Names the requests of a program that uses OpenTelemetry: with one more line, `tracing.start`."""

import zlib

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from icestream import tracing

trace.set_tracer_provider(TracerProvider(resource=Resource.create({"service.name": "example"})))
tracing.start()

tracer = trace.get_tracer(__name__)
with tracer.start_as_current_span("GET /report") as request:
    print("GET /report", f"{request.get_span_context().trace_id:032x}")
    with tracer.start_as_current_span("compress"):
        zlib.compress(bytes(range(256)) * 40_000, 9)
