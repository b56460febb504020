"""Messages that a store refuses for what they hold: dead letters, while the rest of their range is stored once."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError
from confluent_kafka import Message
from deltalake import DeltaTable

from icestream.clickhouse.client import Clients
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, SAMPLES, STACKS
from sinks.clickhouse.sink import MAX_DAYS, ClickHouseSink
from sinks.lake.sink import LakeSink, in_delta_types
from sinks.runner import pending, range_writer
from sinks.runner.ranges import InFlight, MessageRange
from sinks.runner.refused import refused
from sinks.runner.try_out import NotToBlame, drop_in_clickhouse
from sinks.tables.decode import Tables
from sinks.tables.samples import SampleTables
from tests.sinks.messages import activity_batch, sample_batch, stack_batch, tables
from tests.sinks.running import Recording, committed, number, running, send
from tests.waiting import wait_until

NONCE = "0123456789ab"


class Refusing(Recording):
    """Refuses some messages, with all that come with them, or everything while it is away."""

    def __init__(self, *bad: bytes) -> None:
        super().__init__()
        self.bad = bad

    def write(self, *ranges: MessageRange[bytes]) -> None:
        super().write(*ranges)
        self.try_out([message for one in ranges for message in one.messages], empty=False)

    def try_out(self, messages: Sequence[bytes], empty: bool) -> None:
        if self.away or (not empty and set(self.bad) & set(messages)):
            raise ValueError("a value is out of range")


def good_samples(*sequences: int) -> list[Tables]:
    return [tables(SAMPLES, sample_batch(sequence)) for sequence in sequences]


def with_column(message: Tables, name: str, values: pa.Array) -> SampleTables:
    assert isinstance(message, SampleTables)
    rows = message.rows
    return replace(message, rows=rows.set_column(rows.column_names.index(name), name, values))


def attempt(*messages: Tables) -> MessageRange[Any]:
    """An attempt at one range, after another one; of these messages."""
    return MessageRange("C", SAMPLES, 0, InFlight(0, 2, NONCE), list(messages), True)


def test_only_the_message_that_the_store_refuses_becomes_a_dead_letter(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "_BACK_OFF_S", (0.01,))
    sink, rejected = Refusing(b"bad", b"worse"), list[Message]()
    send(in_process_broker, SAMPLES, b"1", b"bad", b"2", b"3", b"worse")
    with running(in_process_broker, sink, rejected) as started:
        wait_until(lambda: committed(in_process_broker, SAMPLES, group="recording") == 5)
        wait_until(lambda: started.problem is None, lambda: started.problem)
    assert [message.value() for message in rejected] == [b"bad", b"worse"]
    ranges: dict[str, list[bytes]] = {r.name: list(r.messages) for r in sink.written}
    assert [message for messages in ranges.values() for message in messages] == [b"1", b"2", b"3"]
    assert len(sink.written) > range_writer.TRY_OUT_AFTER


def test_no_message_is_to_blame_while_the_store_is_away_or_refuses_no_rows() -> None:
    away = Refusing()
    away.away = True
    with pytest.raises(ConnectionError):
        refused(away, [b"1", b"2"])
    away.check = lambda: None  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="out of range"):
        refused(away, [b"1", b"2"])
    assert refused(Refusing(), [b"1", b"2"]) == {}


def test_a_store_that_refuses_many_messages_is_at_fault_itself() -> None:
    bad = [b"%d" % number for number in range(4)]
    assert set(refused(Refusing(*bad[:3]), bad)) == {0, 1, 2}
    with pytest.raises(NotToBlame, match="more than 3 of the messages"):
        refused(Refusing(*bad), bad)
    many = [b"%d" % number for number in range(100)]
    assert len(refused(Refusing(*many[:10]), many)) == 10
    with pytest.raises(NotToBlame):
        refused(Refusing(*many[:11]), many)


def test_a_search_that_takes_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinks.runner.refused._SEARCH_S", -1.0)
    with pytest.raises(NotToBlame, match="took longer"):
        refused(Refusing(b"bad"), [b"1", b"bad"])


def test_no_more_messages_are_left_out_in_an_hour_than_single_faults_explain(
    in_process_broker: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "_BACK_OFF_S", (0.01,))
    monkeypatch.setattr(range_writer, "MAX_REFUSED_PER_HOUR", 1)
    sink, rejected = Refusing(b"bad", b"worse"), list[Message]()
    with running(in_process_broker, sink, rejected) as started:
        send(in_process_broker, SAMPLES, b"1", b"bad")
        wait_until(lambda: committed(in_process_broker, SAMPLES, group="recording") == 2)
        send(in_process_broker, SAMPLES, b"2", b"worse")
        attempts = len(sink.written) + 3 * range_writer.TRY_OUT_AFTER
        wait_until(lambda: len(sink.written) > attempts or len(rejected) > 1)
        assert started.problem is not None
    assert [message.value() for message in rejected] == [b"bad"]
    assert committed(in_process_broker, SAMPLES, group="recording") == 2


@pytest.mark.parametrize("call", ["query", "raw_insert"])
def test_clickhouse_is_believed_only_in_what_it_says_of_values(
    call: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = good_samples(1)
    assert isinstance(one, SampleTables)
    failures = [DatabaseError("HTTP 502: Bad Gateway"), DatabaseError("Code: 236. ABORTED", code=236)]

    def fail(*arguments: object, **more: object) -> None:
        raise failures[-1]

    monkeypatch.setattr(client, call, fail)
    while failures:
        with pytest.raises(NotToBlame):
            drop_in_clickhouse(client, "samples", one.rows)
        failures.pop()


def test_clickhouse_names_the_messages_that_it_refuses_and_stores_nothing(clients: Clients, client: Client) -> None:
    sink = ClickHouseSink(clients)
    one, two, three = good_samples(1, 2, 3)
    bad = with_column(two, "trace_id", pa.array([bytes(17)] * 5))
    assert {row: str(error).split(":")[0] for row, error in refused(sink, [one, bad, three]).items()} == {1: "Code"}
    for topic, message in ((STACKS, stack_batch(3, ["main"])), (ACTIVITY, activity_batch(1))):
        assert refused(sink, [tables(topic, message)]) == {}
    assert number(clients, "SELECT (SELECT count() FROM samples) + (SELECT count() FROM batches)") == 0
    days = pa.array([day * 86_400_000 for day in range(MAX_DAYS + 1)], pa.timestamp("ms", "UTC"))
    many = with_column(tables(SAMPLES, sample_batch(4, rows=MAX_DAYS + 1)), "time", days)
    with pytest.raises(NotToBlame):
        refused(sink, [many, bad])


@pytest.mark.parametrize("first_without", [False, True])
def test_clickhouse_stores_a_range_once_with_and_without_a_message(
    clients: Clients, client: Client, first_without: bool
) -> None:
    class Mortal(ClickHouseSink):
        def _insert(self, table: str, *args: Any) -> None:
            if table == "batches":
                raise ConnectionError("killed")
            super()._insert(table, *args)

    one, two, three = good_samples(1, 2, 3)
    all_messages, without = attempt(one, two, three), attempt(one, three)
    before, after = (without, all_messages) if first_without else (all_messages, without)
    with suppress(ConnectionError):
        Mortal(clients).write(before)
    ClickHouseSink(clients).write(after)
    ClickHouseSink(clients).write(all_messages)
    found = client.query("SELECT sequence, count() FROM batches GROUP BY 1 ORDER BY 1").result_rows
    assert [row for row in found if row[0] != 2] == [(1, 1), (3, 1)]
    rows = client.query("SELECT batch_sequence, count() FROM samples GROUP BY 1 ORDER BY 1").result_rows
    assert rows == [(1, 5), (3, 5)] if first_without else rows == [(1, 5), (2, 5), (3, 5)]


def test_the_lake_stores_a_range_once_with_and_without_a_message(tmp_path: Path) -> None:
    sink = LakeSink(str(tmp_path))
    one, two, three = (in_delta_types(message) for message in good_samples(1, 2, 3))
    bad = with_column(two, "date", pa.array([["a list is no date"]] * 5))
    assert list(refused(sink, [one, bad, three])) == [1]
    for topic, message in ((STACKS, stack_batch(3, ["main"])), (ACTIVITY, activity_batch(1))):
        assert refused(sink, [in_delta_types(tables(topic, message))]) == {}
    assert not list(tmp_path.iterdir())

    class Mortal(LakeSink):
        def _append(self, name: str, *args: Any) -> None:
            if name == "batches":
                raise ConnectionError("killed")
            super()._append(name, *args)

    with suppress(ConnectionError):
        Mortal(str(tmp_path)).write(attempt(one, two, three))
    LakeSink(str(tmp_path)).write(attempt(one, three))
    LakeSink(str(tmp_path)).write(attempt(one, two, three))
    assert DeltaTable(str(tmp_path / "samples")).to_pyarrow_table().num_rows == 15
