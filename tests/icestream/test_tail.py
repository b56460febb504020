"""`icestream tail`, on both brokers, with good messages and garbage."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icestream import cli
from icestream.commands import tail
from icestream.kafka.clients import producer
from icestream.messages.checks import BadMessage
from icestream.messages.message_rows import DECODERS
from icestream.messages.stack_names import StackNames
from icestream.messages.stacks import decode_stacks
from icestream.settings import KafkaSettings
from icestream.topics import DEAD_LETTERS, SAMPLES, STACKS
from icestream.v1.common_pb2 import Mapping
from icestream.v1.stacks_pb2 import StackBatch
from tests.data import messages as builders
from tests.waiting import PATIENCE_S

TRACE = bytes(range(16))


def sample_batch(service: str = "shop") -> bytes:
    """Two samples: one in `hot`, called by `main`, with a trace; one whose stack nobody announced."""
    return builders.sample_batch(
        builders.source(builders.batch_id()), 1_790_000_000_000,
        {
            "sample_offset_ms": [5, 10], "sample_pid": [10, 10], "sample_tid": [11, 12],
            "sample_stack_id": [2, 99], "sample_context": [1, 0], "sample_value": [5_000_000, 5_000_000],
        },
        series=[builders.sample_series({"comm": "worker", "service": service})],
        **builders.contexts([TRACE + bytes(8)]),
    )  # fmt: skip


def stack_batch(hot: str = "hot", version: int = 1) -> StackBatch:
    data = builders.stack_batch(
        {
            "node_id": [1, 2, 3], "node_parent_id": [0, 1, 1], "node_location_id": [100, 101, 102],
            "location_id": [100, 101, 102], "location_address": [0x10, 0x20, 0x30],
            "location_version": [version, version, 0], "location_line_count": [1, 2, 0], "line_function": [1, 3, 2],
        },
        strings=["", "main", hot, "inlined"], mappings=[Mapping(), Mapping(file="/bin/shop")],
    )  # fmt: skip
    return StackBatch.FromString(data)


def learn(names: StackNames, batch: StackBatch) -> None:
    names.learn(decode_stacks(batch.SerializeToString()))


def send(settings: KafkaSettings, *messages: tuple[str, bytes]) -> None:
    sender = producer(settings)
    for topic, value in messages:
        sender.produce(topic, key=b"host-1", value=value)
        assert sender.flush(PATIENCE_S) == 0


def test_samples_are_printed_with_trace_and_function_and_garbage_among_them_is_named(
    broker: KafkaSettings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "_NAMES_TIMEOUT_S", PATIENCE_S)  # without names it would go on
    good, names = sample_batch("shop\x1b[2J"), stack_batch().SerializeToString()
    send(broker, (STACKS, b"\xff" * 9), (STACKS, names), (SAMPLES, b"\xff\xff garbage"), (SAMPLES, good))
    arguments = ["tail", SAMPLES, "--from", "now-1h", "--kafka", broker.kafka]
    assert cli.main([*arguments, "--max", "3"]) == 0
    garbage, first, second = capsys.readouterr().out.splitlines()
    assert "SampleBatch: cannot be read" in garbage
    assert TRACE.hex() in first
    assert "inlined" in first
    assert "\x1b" not in first
    assert f"{99:016x}" in second
    assert cli.main([*arguments, "--max", "2", "--json"]) == 0
    row = json.loads(capsys.readouterr().out.splitlines()[1])
    assert row["function"] == "inlined"
    assert row["trace_id"] == TRACE.hex()
    assert (row["pid"], row["tid"], row["value"], row["labels"]) == (10, 11, 5_000_000, "comm=worker")


def test_headers_of_dead_letters_are_shown(
    in_process_broker: KafkaSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    sender = producer(in_process_broker)
    sender.produce(
        DEAD_LETTERS, value=b"\x00\x01", headers={"icestream.error": "no such field", "of\x1b[2J": "anybody"}
    )
    assert sender.flush(PATIENCE_S) == 0
    assert cli.main(["tail", DEAD_LETTERS, "--from", "now-1h", "--max", "1", "--kafka", in_process_broker.kafka]) == 0
    out = capsys.readouterr().out
    assert "icestream.error=no such field" in out
    assert "\x1b" not in out


@pytest.mark.parametrize("time_text", ["yesterday", "1900-01-01"])
def test_a_time_that_cannot_be_read_is_one_line(time_text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tail", SAMPLES, "--from", time_text]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@given(st.sampled_from(sorted(DECODERS)), st.binary(max_size=200))
def test_any_bytes_are_rows_or_a_bad_message(topic: str, data: bytes) -> None:
    try:
        for row in DECODERS[topic](data, StackNames()):
            assert row
    except BadMessage:
        pass


@given(st.integers(0, 400), st.binary(min_size=1, max_size=4))
def test_a_damaged_message_is_rows_or_a_bad_message(position: int, damage: bytes) -> None:
    for topic, data in ((SAMPLES, sample_batch()), (STACKS, stack_batch().SerializeToString())):
        damaged = data[: position % len(data)] + damage + data[position % len(data) + len(damage) :]
        try:
            for row in DECODERS[topic](damaged, StackNames()):
                assert row
        except BadMessage:
            pass


def test_names_are_those_of_the_highest_version_whatever_the_order() -> None:
    for order in ([1, 2], [2, 1]):
        names = StackNames()
        for version in order:
            learn(names, stack_batch(hot=f"hot v{version}", version=version))
        assert names.frames(2) == ["inlined", "hot v2", "main"]
        assert names.leaf(2) == "inlined"
        assert names.frames(3) == ["shop+0x30", "main"]
        assert names.leaf(0) == "[no stack]"


def test_an_announcement_that_contradicts_itself_changes_nothing() -> None:
    names = StackNames()
    batch = stack_batch()
    batch.location_line_count[0] = 7
    with pytest.raises(BadMessage, match="expected 9, as location_line_count says, got 3"):
        learn(names, batch)
    assert names.frames(2) == []


def test_a_circle_of_nodes_ends() -> None:
    names = StackNames()
    batch = stack_batch()
    batch.node_parent_id[0] = 2
    learn(names, batch)
    assert len(names.frames(2)) > 0
