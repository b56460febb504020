"""A range that is being written to while a job works on it: what arrives is there afterwards, once."""

from collections.abc import Callable
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from icestream.messages.raw import RawColumns
from jobs.backfill import backfill
from jobs.replay import replay
from streams.partition.process import Operators
from tests.data.windows import window
from tests.jobs.stored import T0, WINDOWS, Stored, make_stored, tables
from tests.sinks.engine import client, clients, empty

__all__ = ["client", "clients", "empty"]

pytestmark = pytest.mark.pipeline


@pytest.fixture
def stored(client: Client, tmp_path: Path) -> Stored:
    return make_stored(client, tmp_path)


def on_call(number: int, work: Callable[[], None]) -> Operators:
    calls = iter(range(10**6))

    def change(raw: RawColumns) -> RawColumns:
        if next(calls) == number:
            work()
        return raw

    return Operators(change=change)


# The first batch, the last one, and one between them, which shows what the first one does.
@pytest.mark.parametrize("call", [*(pytest.param(call, marks=pytest.mark.soak) for call in (0, 5)), 2 * WINDOWS - 1])
def test_batches_that_arrive_during_a_backfill_are_stored_once(stored: Stored, call: int) -> None:
    expected = {}

    def arrive() -> None:
        for sequence in (2, 3, 5):  # of another run of the collector: the same host at the same times
            stored.receive(window(T0, sequence, host=0, started_unix_nano=2, seed=1), host=0)
        expected.update(tables(stored.client))

    backfill(stored.work("backfill", operators=on_call(call, arrive)))
    assert tables(stored.client) == expected
    stored.sink_again()
    assert tables(stored.client) == expected


def test_a_part_that_arrives_during_a_replay_of_its_window_is_stored_once(stored: Stored) -> None:
    stored.client.command("DELETE FROM samples WHERE stack_id % 3 = 0", settings={"lightweight_deletes_sync": 2})
    stored.client.command("DELETE FROM trace_samples WHERE 1", settings={"lightweight_deletes_sync": 2})
    late = window(T0, 3, host=0, started_unix_nano=2, seed=1)
    windows = (window(T0, sequence, host) for sequence in range(1, WINDOWS + 1) for host in (0, 1))
    value = sum(one.value for one in windows) + late.value
    replay(stored.work("replay", operators=on_call(0, lambda: stored.receive(late, host=0))))
    assert stored.total() == value
    stored.sink_again()
    assert stored.total() == value
