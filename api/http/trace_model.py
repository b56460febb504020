"""What answers about requests look like, for /openapi.json."""

from pydantic import Field

from api.http.answer_model import Answer
from api.http.graph_model import TreeMembers

_TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


class Cpu(Answer):
    """CPU of a request or of a part of it."""

    cpu_ns: int = Field(description="thread_cpu_ns of the services that have it, sampled_cpu_ns of the others")
    thread_cpu_ns: int
    sampled_cpu_ns: int
    sampled_cpu_low_ns: int | None = Field(description="With the next, the 95 % confidence interval of sampled_cpu_ns")
    sampled_cpu_high_ns: int | None
    samples: int


class Trace(Cpu):
    trace_id: str
    operation: str
    service: str


class ListedTrace(Trace):
    start_unix_nano: int | None = Field(
        description="When the root span began; without spans, its first interval of activity; null: not known"
    )
    duration_ns: int | None = Field(description="Until the root span ended, or all activity; null: not known")
    status: str = Field(description="error: a span of it ended with an error; or empty")


class Traces(Answer):
    traces: list[ListedTrace]
    next: str | None
    complete_above_ns: int | None = Field(
        description="Requests that used no more CPU than this in any minute of an operation, or were stored in pieces,"
        " may be missing; null: none is"
    )
    thinned_until: str | None = Field(description="Until then, light requests may be missing; null: none are")


class SpanAnswer(Cpu):
    span_id: str
    parent_span_id: str
    name: str
    status: str = Field(description="error, ok, or empty: not set")
    service: str
    start_unix_nano: int = Field(default=0, description="Missing until the application has reported the span")
    end_unix_nano: int = Field(default=0, description="As start_unix_nano")
    thread_time_ns: int = Field(
        description="How long threads worked in the span, or waited in it; without its children"
    )
    waits: dict[str, int] | None = Field(description="Nanoseconds by reason, as in RequestTime")


class ServiceCpu(Cpu):
    service: str


class HostCpu(Cpu):
    host_id: str


class Like(Answer):
    """Where the graph of requests like this one is: parameters of merge."""

    selector: str
    start: str
    end: str


class TraceHead(Trace):
    expected_samples: float | None = Field(description="How many samples its CPU has on average")
    few_samples: bool = Field(description="It has so few samples that its graph shows chance")
    thinned: bool = Field(description="Its thread CPU and most spans are no longer kept; samples are")
    like: Like


class RequestTime(Answer):
    """What the time of a request was: thread_time_ns is CPU, waits, and what is not explained."""

    duration_ns: int = Field(description="From the start of the root span to its end")
    thread_time_ns: int = Field(description="How long threads worked for it, or waited, all together")
    threads: int = Field(description="How many; 0: not known, because no service sends activity")
    no_thread_ns: int = Field(description="How long no thread worked for it: a task awaited something")
    cpu_ns: int
    waits: dict[str, int] | None = Field(
        description="Nanoseconds by reason: lock, disk, network, pipe, sleep, run_queue or other; null: not profiled"
    )
    off_cpu_low_ns: int = Field(description="With the next, the 95 % confidence interval of all waits together")
    off_cpu_high_ns: int
    followed_of: int = Field(description="One of so many waits was followed, and stands for all of them")
    unprofiled_hosts: list[str] = Field(description="Hosts that do not profile waits")
    unexplained_ns: int = Field(
        description="Negative where the waits that were followed stand for more than there were"
    )


class TraceCpuAnswer(TraceHead):
    time: RequestTime | None = Field(description="null: not asked for, as the profile type is not CPU")
    spans: list[SpanAnswer]
    more_spans: int
    services: list[ServiceCpu]
    hosts: list[HostCpu]
    more_hosts: int


class TraceTree(TreeMembers, TraceHead):
    """The tree of a request."""

    profile_type: str
    scale: str
    unsampled_cpu_ns: int


_CPU = {
    "cpu_ns": 421733112,
    "thread_cpu_ns": 421733112,
    "sampled_cpu_ns": 420000000,
    "sampled_cpu_low_ns": 302695143,
    "sampled_cpu_high_ns": 567717306,
    "samples": 42,
}
_TRACE = {"trace_id": _TRACE_ID, "operation": "POST /checkout", "service": "checkout", **_CPU}
TRACES_EXAMPLE = {
    "traces": [{**_TRACE, "start_unix_nano": 1769860800000000000, "duration_ns": 500000000, "status": ""}],
    "next": "WyJjcHUiLDE3Njk4NjA4MDBd",
    "complete_above_ns": 12000000,
    "thinned_until": "2026-01-29T00:00:00.000Z",
}
TRACE_CPU_EXAMPLE = {
    **_TRACE,
    "expected_samples": 42.17,
    "few_samples": False,
    "thinned": False,
    "like": {
        "selector": '{service="checkout", operation="POST /checkout"}',
        "start": "2026-01-31T11:30:00.000Z",
        "end": "2026-01-31T12:30:00.500Z",
    },
    "time": {
        "duration_ns": 500000000,
        "thread_time_ns": 500000000,
        "threads": 1,
        "no_thread_ns": 0,
        "cpu_ns": 421733112,
        "waits": {"network": 60000000, "run_queue": 15000000},
        "off_cpu_low_ns": 75000000,
        "off_cpu_high_ns": 75000000,
        "followed_of": 1,
        "unprofiled_hosts": [],
        "unexplained_ns": 3266888,
    },
    "spans": [
        {
            "span_id": "00f067aa0ba902b7",
            "parent_span_id": "",
            "name": "POST /checkout",
            "status": "error",
            "service": "checkout",
            **_CPU,
            "start_unix_nano": 1769860800000000000,
            "end_unix_nano": 1769860800500000000,
            "thread_time_ns": 500000000,
            "waits": {"network": 60000000, "run_queue": 15000000},
        }
    ],
    "more_spans": 0,
    "services": [{"service": "checkout", **_CPU}],
    "hosts": [{"host_id": "node-7", **_CPU}],
    "more_hosts": 0,
}
