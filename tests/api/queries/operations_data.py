"""Requests of two services, with samples, intervals and spans."""

from dataclasses import dataclass, field

from clickhouse_connect.driver.client import Client

from tests.api.fill import START_S, Frame, Sample, fill, frame, request_labels
from tests.data.tables import NO_SPAN, insert_rows, to_datetime

MAIN, HOT, COLD = frame("main"), frame("hot"), frame("cold")
SAMPLE_NS = 10_000_000


@dataclass
class Request:
    """One request of a service: an entry span and a span within it."""

    number: int
    operation: str
    cpu_ns: int = 20_000_000
    duration_ns: int = 50_000_000
    samples: int = 1  # in the entry span
    inner_samples: int = 0
    service: str = "shop"
    at_s: float = 60.0
    stack: tuple[Frame, ...] = (MAIN, HOT)
    labels: dict[str, str] = field(default_factory=dict)
    ended: bool = True
    status: str = ""  # of its entry span
    active_service: str = ""  # what activity calls the service, if it calls it differently

    @property
    def trace_id(self) -> bytes:
        return self.number.to_bytes(16, "big")

    @property
    def entry_id(self) -> bytes:
        return (2 * self.number).to_bytes(8, "big")

    @property
    def inner_id(self) -> bytes:
        return (2 * self.number + 1).to_bytes(8, "big")


def insert_requests(client: Client, requests: list[Request], plain_samples: list[Sample] | None = None) -> None:
    """Inserts the requests, and samples without a trace."""
    samples = list(plain_samples or [])
    activity, spans = [], []
    for each in requests:
        start = to_datetime(START_S + each.at_s)
        for span_id, count in ((each.entry_id, each.samples), (each.inner_id, each.inner_samples)):
            samples += [
                Sample(
                    each.stack, SAMPLE_NS, labels={"service": each.service} | each.labels,
                    time_s=START_S + each.at_s + 0.01, trace_id=each.trace_id, span_id=span_id,
                )
            ] * count  # fmt: skip
        for span_id, cpu_ns in ((each.entry_id, each.cpu_ns - each.cpu_ns // 4), (each.inner_id, each.cpu_ns // 4)):
            activity.append(
                {
                    "trace_id": each.trace_id, "span_id": span_id, "host_id": "host-1",
                    "service": each.active_service or each.service,
                    "start_time": start, "duration_ns": each.duration_ns, "thread_cpu_ns": cpu_ns,
                    "operation": each.operation, "entry_span_id": each.entry_id,
                    "request_labels": request_labels(each.labels),
                }
            )  # fmt: skip
        if each.ended:
            end = to_datetime(START_S + each.at_s + each.duration_ns / 1e9)
            names = ((each.entry_id, NO_SPAN, each.operation), (each.inner_id, each.entry_id, ""))
            spans += [
                {
                    "trace_id": each.trace_id, "span_id": span_id, "parent_span_id": parent, "host_id": "host-1",
                    "name": operation or "inner", "service": each.service, "start_time": start, "end_time": end,
                    "operation": operation, "status": each.status if operation else "",
                    "request_labels": request_labels(each.labels),
                }
                for span_id, parent, operation in names
            ]  # fmt: skip
    fill(client, samples)
    insert_rows(client, "activity", activity)
    insert_rows(client, "spans", spans)
