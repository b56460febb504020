"""Runs of collectors that are in several partitions, as after partitions were added: a job stores each batch once, and
gives samples the traces that they have of the live pipeline."""

from typing import Any

import pytest

from icestream.messages.message_id import MessageId
from icestream.topics import ACTIVITY, RAW, SAMPLES, STACKS
from jobs.backfill import backfill
from jobs.lake.rows import JobLake
from jobs.replay import replay
from jobs.time_range import SLICE_NS
from tests.data.messages import WINDOW_NS
from tests.data.windows import Window, window
from tests.jobs.lake.test_lake import check_same, in_lake, stored, to_lake
from tests.jobs.stored import T0, WINDOWS, Stored, tables
from tests.sinks.engine import client, clients, empty

__all__ = ["client", "clients", "empty", "stored"]

pytestmark = pytest.mark.pipeline

ACROSS = T0 - WINDOW_NS // 2
"""Window 4 from here on reaches from one slice into the next one."""


def by(job: Any, other: Any) -> Any:
    """For tests that take `job`: both jobs come to a batch by the same steps (jobs/recompute), so one is enough."""
    return pytest.mark.parametrize("job", [job, pytest.param(other, marks=pytest.mark.soak)])


def arrive(stored: Stored, host_window: Window, partition: int, *topics: str) -> None:
    """Messages of a window arrive in a partition, are archived, processed, and stored."""
    outputs = []
    for topic in topics:
        value = host_window.activity if topic == ACTIVITY else host_window.raw
        at = stored.inputs
        stored.add(topic, value, partition)
        process = stored.processor.activity if topic == ACTIVITY else stored.processor.raw
        published = process(value, MessageId("C", topic, partition, at))
        outputs += [(STACKS, m) for m in published.stacks] + [(SAMPLES, m) for m in published.samples]
        outputs += [(ACTIVITY, value)] if topic == ACTIVITY else []
    stored.receive_outputs(outputs)
    to_lake(stored, outputs, base=100_000 + 100 * stored.inputs)


def check(stored: Stored, job: Any) -> dict[str, Any]:
    """A job leaves both stores as they are, and restores both; returns what ClickHouse has."""
    before, lake = tables(stored.client), check_same(stored)
    job(stored.work(job.__name__, ACROSS))
    assert tables(stored.client) == before
    for table in before:
        stored.client.command(f"TRUNCATE TABLE {table}")
    assert stored.lake is not None
    stored.lake = JobLake(f"{stored.lake.uri}-empty", lambda: None)
    done = job(stored.work(job.__name__, ACROSS))
    assert done.counts.samples == sum(row[-2] for row in before["samples"])
    assert tables(stored.client) == before
    assert in_lake(stored) == lake
    assert stored.total() == sum(row[-1] for row in before["samples"])
    return before


@by(replay, backfill)
def test_what_was_sent_again_into_another_partition_is_stored_once(stored: Stored, job: Any) -> None:
    assert (ACROSS + 3 * WINDOW_NS) // SLICE_NS < (ACROSS + 4 * WINDOW_NS) // SLICE_NS
    for sequence in range(1, WINDOWS + 1):
        arrive(stored, window(T0, sequence, host=0), 1, ACTIVITY, RAW)
    for partition in (1, 0):
        for sequence in range(1, WINDOWS + 1):
            across = window(ACROSS, sequence, host=0, started_unix_nano=2, seed=1)
            arrive(stored, across, partition, ACTIVITY, RAW)
    found = check(stored, job)
    assert len(found["batches"]) == 3 * 2 * WINDOWS


@by(backfill, replay)
def test_corrections_by_activity_of_another_partition_stay(stored: Stored, job: Any) -> None:
    """The activity came after both copies of its raw batch, and into one of the two partitions."""
    other = window(T0, 2, host=0, started_unix_nano=2, seed=1)
    arrive(stored, other, 0, RAW)
    arrive(stored, other, 1, RAW, ACTIVITY)
    traces = of_traces(stored)
    assert traces == other.by_trace
    check(stored, job)
    assert of_traces(stored) == traces


@by(replay, backfill)
def test_samples_get_the_traces_of_activity_in_another_partition(stored: Stored, job: Any) -> None:
    other = window(T0, 2, host=0, started_unix_nano=2, seed=1)
    arrive(stored, other, 0, ACTIVITY)
    arrive(stored, other, 1, RAW)
    assert of_traces(stored) == {}
    job(stored.work(job.__name__))
    assert of_traces(stored) == other.by_trace
    check(stored, job)


def of_traces(stored: Stored) -> dict[str, int]:
    """The value of each trace of a second run of a collector."""
    rows = stored.client.query(
        "SELECT lower(hex(trace_id)) AS trace, sum(value) FROM samples WHERE batch_run LIKE '%/2/0' AND trace_id != ''"
        " AND trace_id != repeat(char(0), 16) GROUP BY trace HAVING sum(value) != 0"
    ).result_rows
    return dict(rows)


@pytest.mark.parametrize("partition", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_of_a_batch_in_two_partitions_one_copy_may_be_in_a_damaged_file(stored: Stored, partition: int) -> None:
    other = window(T0, 2, host=0, started_unix_nano=2, seed=1)
    for to in (0, 1):
        arrive(stored, other, to, ACTIVITY, RAW)
    for table in (before := tables(stored.client)):
        stored.client.command(f"TRUNCATE TABLE {table}")
    file = max((stored.archive / RAW).rglob(f"C-{partition}-*"), key=lambda path: int(path.name.split("-")[2]))
    file.write_bytes(file.read_bytes()[:-1000])
    assert replay(stored.work("replay")).counts.damaged
    assert tables(stored.client) == before
