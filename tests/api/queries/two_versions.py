"""Requests of two versions of a service, whose functions cost what is known."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from clickhouse_connect.driver.client import Client

from icestream.ids import series_id
from tests.api.fill import SEEN, START_S, Frame, insert_locations, insert_nodes, request_labels, stack_id
from tests.data.tables import insert_columns, insert_series, to_datetime

PERIOD_NS = 52_631_578
"""19 samples a second."""
MS = 10**6
CHECKOUT, CART = "GET /checkout", "GET /cart"
COSTS = {"price_rules": 16.3, "hash_cart": 6.0, "render": 3.9}
"""What a request of CHECKOUT costs, in milliseconds."""
SLOWER = COSTS | {"price_rules": 1.3 * 16.3, "render": 1.05 * 3.9}


def _python(name: str, file: str) -> Frame:
    return Frame((name,), abs(hash((name, file))) % 2**40, "[python]", kind=4, source=file)


HANDLE = _python("handle", "/app/shop/server.py")
OWN = {name: _python(name, "/app/shop/prices.py") for name in COSTS}
FLOAT = Frame(("PyFloat_FromDouble",), 0x1000, "/usr/lib/libpython3.11.so.1.0")
"""A function of the interpreter, which the others call."""
_STACKS = {name: (HANDLE, frame) for name, frame in OWN.items()}
_IN_LIBRARY = {name: (*stack, FLOAT) for name, stack in _STACKS.items()}


@dataclass(frozen=True)
class Version:
    """The requests of one operation, one after the other within `seconds` from `at_s` on."""

    costs: Mapping[str, float]
    at_s: float
    requests: int = 2000
    operation: str = CHECKOUT
    service: str = "shop"
    service_version: str = "1.0"
    seconds: float = 180
    spread: float = 0.3  # coefficient of variation of a function's cost
    errors: int = 0
    clock: bool = True
    in_library: float = 0.4  # which part of the samples of each function is in FLOAT

    @property
    def labels(self) -> dict[str, str]:
        return {"service": self.service, "service_version": self.service_version}


def insert_versions(client: Client, *versions: Version, seed: int = 1) -> None:
    """Inserts the activity, the spans and the samples of all their requests."""
    random, rows = np.random.default_rng(seed), _Rows()
    for version in versions:
        rows.add(version, random)
    if rows.activity:
        insert_columns(client, "activity", **rows.activity)
    insert_columns(client, "spans", **rows.spans)
    insert_columns(client, "samples", host_id="host-1", value=PERIOD_NS, **rows.samples)
    insert_nodes(client, {*_STACKS.values(), *_IN_LIBRARY.values()})
    insert_locations(client, {HANDLE, FLOAT, *OWN.values()})
    insert_series(client, [each.labels for each in versions], SEEN)


class _Rows:
    """Columns of the tables."""

    def __init__(self) -> None:
        self.activity: dict[str, list[object]] = defaultdict(list)
        self.spans: dict[str, list[object]] = defaultdict(list)
        self.samples: dict[str, list[object]] = defaultdict(list)

    def add(self, version: Version, random: np.random.Generator) -> None:
        count, shape = version.requests, 1 / version.spread**2
        costs = {name: random.gamma(shape, ms * MS / shape, count) for name, ms in version.costs.items()}
        cpu_ns = np.sum(list(costs.values()), axis=0)
        duration_ns = cpu_ns * random.uniform(1.2, 2.5, count)
        start_s = START_S + version.at_s + np.sort(random.uniform(0, version.seconds - 1, count))
        traces, spans = ([random.bytes(size) for _ in range(count)] for size in (16, 8))
        start = [to_datetime(each) for each in start_s]
        failed = set(random.choice(count, version.errors, replace=False).tolist())
        of_all = {"host_id": ["host-1"] * count, "service": [version.service] * count, "trace_id": traces}
        of_all["request_labels"] = [request_labels(version.labels)] * count
        of_all |= {"span_id": spans, "start_time": start, "operation": [version.operation] * count}
        if version.clock:
            _extend(self.activity, of_all | {
                "entry_span_id": spans, "duration_ns": duration_ns.astype(int).tolist(),
                "thread_cpu_ns": cpu_ns.astype(int).tolist(),
            })  # fmt: skip
        _extend(self.spans, of_all | {
            "name": of_all["operation"], "status": ["error" if row in failed else "ok" for row in range(count)],
            "end_time": [to_datetime(each) for each in start_s + duration_ns / 1e9],
        })  # fmt: skip
        for name, cost in costs.items():
            rows = np.repeat(np.arange(count), random.poisson(cost / PERIOD_NS)).tolist()
            in_library = random.random(len(rows)) < version.in_library
            stacks = [stack_id((_IN_LIBRARY if inside else _STACKS)[name]) for inside in in_library]
            _extend(self.samples, {
                "request_labels": [request_labels(version.labels)] * len(rows),
                "series_id": [series_id(version.labels.items())] * len(rows), "service": [version.service] * len(rows),
                "time": [start[row] for row in rows], "stack_id": stacks,
                "trace_id": [traces[row] for row in rows], "span_id": [spans[row] for row in rows],
            })  # fmt: skip


def _extend(columns: dict[str, list[object]], rows: Mapping[str, list[object]]) -> None:
    for name, values in rows.items():
        columns[name] += values
