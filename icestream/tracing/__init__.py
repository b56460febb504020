"""Shows a profiler which request each thread of this process works for. Standard library only.

    from icestream import tracing

    tracing.start(service="shop")
    with tracing.span("4bf92f3577b34da6a3ce929d0e0e4736", name="GET /checkout"):
        ...

Applications that use OpenTelemetry need only `start`. Tracing publishes each thread's current trace and span as
OpenTelemetry thread context, which an eBPF profiler reads when it takes a sample. It sends two things to the collector
on this host: intervals in which a thread worked for a trace, with the CPU time that they took; and spans that ended.
"""

from icestream.tracing.lifecycle import Status, start, status, stop
from icestream.tracing.span import Span, span

__all__ = ["Span", "Status", "span", "start", "status", "stop"]
