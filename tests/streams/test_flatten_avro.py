"""Records of icestream.flat as Avro: a reader with schemas/flat.avsc gets what JSON has."""

import io
import json
import re
from pathlib import Path

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.schema import load_schema
from fastavro.validation import validate
from hypothesis import given
from hypothesis import strategies as st

from icestream.cli import main
from icestream.messages.stack_names import Frame, StackNames
from icestream.settings import KafkaSettings
from icestream.topics import DEFAULT_PROFILE_TYPE, FLAT, MAX_MESSAGE_BYTES, SAMPLES, STACKS
from streams.flatten.avro import avro_encoder
from streams.flatten.record import record
from streams.flatten.sums import FlatKey, FlatSum
from tests.icestream.test_tail import send, stack_batch
from tests.pipeline.reading import follow
from tests.streams.test_flatten import deep_stack, running, sample_batch
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
SCHEMA = load_schema(ROOT / "schemas" / "flat.avsc")


def read(data: bytes) -> dict:
    stream = io.BytesIO(data)
    fields = schemaless_reader(stream, SCHEMA, None)
    assert stream.read() == b""
    assert isinstance(fields, dict)
    return fields


class Named(StackNames):
    def __init__(self, leaf_first: list[str]) -> None:
        super().__init__()
        self._leaf_first = leaf_first

    def stack(self, stack_id: int) -> list[Frame]:
        return [Frame(name, f"/lib/{name}", f"{name}.c") for name in self._leaf_first]


_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_keys = st.builds(
    FlatKey, partition=st.just(0), host_id=_texts, profile_type=st.just("memory:inuse_space:bytes:space:bytes"),
    labels=st.dictionaries(_texts | st.just("service"), _texts, max_size=5).map(lambda labels: tuple(labels.items())),
    stack_id=st.integers(0, 2**64 - 1), start_unix_milli=st.integers(0, 2**52), operation=_texts,
)  # fmt: skip
_numbers = st.integers(-(2**70), 2**70)


@given(
    key=_keys, value=_numbers, samples=_numbers, interval_ms=st.integers(100, 86_400_000),
    frames=st.lists(_texts, max_size=10), schema_id=st.none() | st.integers(1, 2**31 - 1),
)  # fmt: skip
def test_avro_says_what_json_says(
    key: FlatKey, value: int, samples: int, interval_ms: int, frames: list[str], schema_id: int | None
) -> None:
    arguments = (key, FlatSum(value, samples), interval_ms, Named(frames))
    avro = record(*arguments, avro_encoder(schema_id))
    if schema_id is not None:
        assert (avro[0], int.from_bytes(avro[1:5], "big")) == (0, schema_id)
        avro = avro[5:]
    assert read(avro) == json.loads(record(*arguments))


def test_readers_with_the_schema_from_before_operations_read_new_records_and_the_other_way_round() -> None:
    written = json.loads((ROOT / "schemas" / "flat.avsc").read_text())
    added = {"operation": "", "modules": [], "files": []}
    before = parse_schema(written | {"fields": [each for each in written["fields"] if each["name"] not in added]})
    key = FlatKey(0, "host-1", DEFAULT_PROFILE_TYPE, (("service", "shop"),), 0, 0, "GET /checkout")
    data = record(key, FlatSum(5, 1), 10_000, Named([]), avro_encoder(None))
    new = read(data)
    old = schemaless_reader(io.BytesIO(data), SCHEMA, before)
    assert new["operation"] == "GET /checkout"
    new = {name: value for name, value in new.items() if name not in added}
    assert new == old
    stream = io.BytesIO()
    schemaless_writer(stream, before, new)
    stream.seek(0)
    assert schemaless_reader(stream, before, SCHEMA) == new | added


def test_the_record_on_the_page_is_one_of_the_schema() -> None:
    [example] = re.findall(
        r"^```json\n(\{.*?)^```", (ROOT / "docs" / "topics.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert validate(json.loads(example), SCHEMA, strict=True)


def test_a_stack_too_large_for_a_message_loses_its_middle() -> None:
    key = FlatKey(0, "host-1", DEFAULT_PROFILE_TYPE, (("service", "shop"),), 4096, 0)
    data = record(key, FlatSum(5, 1), 10_000, deep_stack(), avro_encoder(7))
    frames = read(data[5:])["functions"]
    assert 200_000 < len(data) <= MAX_MESSAGE_BYTES
    assert (frames[0], frames[len(frames) // 2], frames[-1]) == ("main", "[cut]", "hot")


def test_flatten_publishes_avro_with_the_id_of_a_schema(in_process_broker: KafkaSettings) -> None:
    send(in_process_broker, (STACKS, stack_batch().SerializeToString()), (SAMPLES, sample_batch(1)))
    reader = follow(in_process_broker, FLAT)
    values: list[bytes] = []

    def arrived() -> bool:
        values.extend(message.value() or b"" for message in reader.consume(100, timeout=0.3) if not message.error())
        return len(values) >= 3

    with running(in_process_broker, 200, avro_encoder(258)):
        wait_until(arrived)
    reader.close()
    assert {value[:5] for value in values} == {b"\0\0\0\1\2"}
    records = [read(value[5:]) for value in values]
    assert sum(each["value"] for each in records) == 20_000_000
    assert ["main", "hot", "inlined"] in [each["functions"] for each in records]


def test_the_command_refuses_a_schema_id_that_it_has_no_use_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flatten", "--schema-id", "3"]) == 1
    assert "--format avro" in capsys.readouterr().err
    for wrong in ("0", "-1", "x", "2147483648"):
        with pytest.raises(SystemExit):
            main(["flatten", "--format", "avro", f"--schema-id={wrong}"])
        assert "expected a whole number above 0" in capsys.readouterr().err
