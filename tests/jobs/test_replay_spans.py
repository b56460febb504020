"""Replay of spans that were reported several times: the last report stays, as the tables keep it."""

from typing import Any

import pytest
from deltalake import DeltaTable

from icestream.topics import ACTIVITY
from icestream.v1.activity_pb2 import ActivityBatch, Span
from icestream.v1.common_pb2 import BatchId
from jobs.replay import replay
from jobs.time_range import SLICE_NS
from tests.jobs.lake.test_lake import stored, to_lake
from tests.jobs.stored import T0, Stored
from tests.sinks.engine import client, clients, empty

__all__ = ["client", "clients", "empty", "stored"]

pytestmark = pytest.mark.pipeline

DAY = T0 + 15 * 10**9
NEXT_SLICE = DAY + SLICE_NS
ERROR, OK = 2, 1


def report(stored: Stored, operation: str, status: int, start: int = DAY, by: str = "app") -> None:
    """A report of the same span arrives, and ClickHouse merges what it has."""
    at = stored.inputs
    batch = ActivityBatch(
        id=BatchId(collector=by, started_unix_nano=1, sequence=at + 1, parts=1),
        host_id="host-0",
        start_unix_nano=start,
        complete_unix_nano=start,
        published_unix_nano=start + 10**9,
        strings=[""],
        spans=[
            Span(
                trace_id=b"t" * 16, span_id=b"s" * 8, service="checkout", name="GET", operation=operation,
                status=status, start_unix_nano=start, end_unix_nano=start + 10**6,
            )
        ],
    )  # fmt: skip
    stored.add(ACTIVITY, batch.SerializeToString())
    outputs = [(ACTIVITY, batch.SerializeToString())]
    stored.receive_outputs(outputs)
    to_lake(stored, outputs, base=50_000 + at)
    merge(stored)


def merge(stored: Stored) -> None:
    for table in ("spans", "entry_spans"):
        stored.client.command(f"OPTIMIZE TABLE {table} FINAL")


def spans(stored: Stored) -> list[Any]:
    merge(stored)
    return [
        stored.client.query(f"SELECT * FROM {table} ORDER BY ALL").result_rows for table in ("spans", "entry_spans")
    ]


def in_lake(stored: Stored) -> DeltaTable:
    assert stored.lake is not None
    table = stored.lake.open("spans")
    assert table is not None
    return table


def run(stored: Stored) -> None:
    replay(stored.work("replay", end=NEXT_SLICE + SLICE_NS))


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (("GET /old", OK), ("GET /checkout/{id}", ERROR)),
        pytest.param(("GET /old", OK), ("", 0), marks=pytest.mark.soak),
        pytest.param(("GET /old", OK), ("", ERROR), marks=pytest.mark.soak),
        (("", 0), ("GET /checkout/{id}", ERROR)),
    ],
)
def test_a_replay_leaves_the_last_report_of_a_span(
    stored: Stored, first: tuple[str, int], last: tuple[str, int]
) -> None:
    report(stored, *first)
    report(stored, *last)
    before, version = spans(stored), in_lake(stored).version()
    for _ in range(2):
        run(stored)
        assert (spans(stored), in_lake(stored).version()) == (before, version)


def test_a_replay_leaves_a_span_whose_last_report_lies_in_another_slice(stored: Stored) -> None:
    for starts in ((NEXT_SLICE - 1, NEXT_SLICE), (NEXT_SLICE, NEXT_SLICE - 1)):
        for start, operation in zip(starts, ("GET /old", "GET /checkout/{id}"), strict=True):
            report(stored, operation, OK, start)
        before = spans(stored)
        run(stored)
        assert spans(stored) == before


def test_a_replay_brings_back_the_last_report_of_a_span(stored: Stored) -> None:
    report(stored, "GET /old", OK)
    report(stored, "GET /checkout/{id}", ERROR)
    before = spans(stored)
    stored.client.command("TRUNCATE TABLE spans")
    stored.client.command("TRUNCATE TABLE entry_spans")
    in_lake(stored).delete("true")
    run(stored)
    assert spans(stored) == before
    version = in_lake(stored).version()
    run(stored)
    assert in_lake(stored).version() == version


def test_a_replay_adds_what_a_stored_span_does_not_say(stored: Stored) -> None:
    report(stored, "GET /checkout/{id}", ERROR)
    before = spans(stored)
    (span,) = stored.client.query("SELECT * FROM spans WHERE status = 'error'").result_rows
    for operation, status in (("", ""), ("GET /checkout/{id}", ""), ("", "error")):
        stored.client.insert("spans", [[*span[:-3], operation, status, span[-1]]])
        assert spans(stored) != before
        run(stored)
        assert spans(stored) == before
