"""Requests of the last hours, in the blocks in which they were stored, and the tables as they are read where rows are
few, and where they are too many."""

import random
import time
import uuid
from typing import Any

from api.queries.database import Database
from api.queries.selection.selection import Selection
from api.queries.selection.selector import parse
from api.settings import ApiSettings
from icestream.clickhouse.client import Clients
from icestream.topics import DEFAULT_PROFILE_TYPE
from sinks.clickhouse.sink import SETTINGS
from tests.api.queries.request_store import LABEL_SETS
from tests.api.queries.rollup_store import HOUR, select
from tests.data.tables import to_datetime

SERVICES, OPERATIONS = ("cart", "shop"), ("GET /a", "GET /b", "")
SELECTORS = (
    "{}", '{service="cart"}', '{operation=~"GET.*"}', '{service=~"c.*", operation!="GET /a"}',
    '{service_version=~".*1", operation!="GET /a"}',
)  # fmt: skip


_OF_SPANS = ("trace_id", "span_id", "service", "host_id", "start_time", "operation", "request_labels")


class RecentStore:
    """Requests have no two pieces of CPU of one length, so that their order is known."""

    def __init__(self, clients: Clients, seed: int) -> None:
        self.clients = clients
        self.client = clients.get()
        self.of_rows = Database(clients, ApiSettings())
        self.of_sums = Database(clients, ApiSettings(api_exact_requests=0))
        self.random = random.Random(seed)
        self.start = int(time.time()) // HOUR * HOUR - 3 * HOUR
        self.count = 0

    def request(self, operation: str, service: str, at: float, cpu_ns: int) -> dict[str, Any]:
        """One with an interval, a span and a sample of half of its CPU; returns its interval."""
        self.count += 1
        return {
            "trace_id": self.count.to_bytes(16, "big"), "span_id": self.count.to_bytes(8, "big"), "service": service,
            "host_id": "host-1", "start_time": to_datetime(self.start + at), "duration_ns": cpu_ns,
            "thread_cpu_ns": cpu_ns, "operation": operation, "entry_span_id": self.count.to_bytes(8, "big"),
            "request_labels": LABEL_SETS[self.count % len(LABEL_SETS)],
        }  # fmt: skip

    def requests(self, count: int, seconds: float = HOUR) -> list[dict[str, Any]]:
        choose = self.random
        return [
            self.request(
                choose.choice(OPERATIONS), choose.choice(SERVICES), choose.uniform(0, seconds),
                int(choose.lognormvariate(15, 1.5)),
            )
            for _ in range(count)
        ]  # fmt: skip

    def store(self, intervals: list[dict[str, Any]], blocks: int = 1) -> None:
        """Stores intervals, and the spans and samples of their requests, each once."""
        for first in range(blocks):
            self.insert("activity", intervals[first::blocks])
        entries = [one for one in intervals if one["span_id"] == one["entry_span_id"] and one["operation"]]
        self.insert("spans", [
            {name: one[name] for name in _OF_SPANS}
            | {"status": ("", "ok", "error")[one["thread_cpu_ns"] % 3]}
            | {"end_time": to_datetime(one["start_time"].timestamp() + one["duration_ns"] / 1e9)}
            for one in entries
        ])  # fmt: skip
        self.store_samples(intervals, 0.5)

    def store_samples(self, intervals: list[dict[str, Any]], share: float, known: float = 1) -> None:
        """Stores a sample of this share of the CPU of each interval. `known`: of how many the operation is known."""
        rows = [self.sample(one, share) for one in intervals]
        for row in rows:
            if self.random.random() >= known:
                row["known_operation"] = ""
        self.insert("samples", rows)

    def sample(self, interval: dict[str, Any], share: float) -> dict[str, Any]:
        """A sample of this share of the CPU of an interval; negative where a correction takes it back."""
        return {name: interval[name] for name in ("trace_id", "span_id", "service", "host_id", "request_labels")} | {
            "time": interval["start_time"], "value": int(interval["thread_cpu_ns"] * share),
            "count": 1 if share > 0 else -1, "profile_type": DEFAULT_PROFILE_TYPE,
            "known_operation": interval["operation"],
        }  # fmt: skip

    def insert(self, table: str, rows: list[dict[str, Any]], token: str = "") -> None:
        """Inserts one block."""
        settings = SETTINGS | {"insert_deduplication_token": token or uuid.uuid4().hex}
        if rows:
            self.client.insert(
                table, [list(row.values()) for row in rows], column_names=list(rows[0]), settings=settings
            )

    def selection(self, selector: str = "{}", first: float = 0, last: float = HOUR) -> Selection:
        return select(parse(selector), self.start + first, self.start + last)
