"""Late symbols: what was stored without a name gets it, with no new samples."""

import hashlib
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import zstandard
from confluent_kafka import KafkaException
from symbolic.debuginfo import Archive

from icestream.clickhouse.client import Clients
from icestream.kafka.clients import MAY_REPEAT, producer
from icestream.messages.stack_encoder import LocationNames
from icestream.settings import KafkaSettings
from icestream.symbols.line import Line
from icestream.symbols.symcache import SymCaches
from icestream.topics import MAX_MESSAGE_BYTES, STACKS, SYMBOLS
from icestream.v1.common_pb2 import Mapping
from icestream.v1.stacks_pb2 import StackBatch
from icestream.v1.symbols_pb2 import SymbolFile
from sinks import service
from sinks.resolve import Location, ResolveSink, stack_batches
from sinks.settings import SinkSettings
from tests.data.messages import stack_batch
from tests.waiting import PATIENCE_S, wait_until

SOURCE = "int deep(int x) { return x * 3; }\nint main(int argc, char **argv) { return deep(argc); }\n"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[SymbolFile], int]:
    """Messages of a program's SymCache, and the address of its function `deep`."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "p.c").write_text(SOURCE)
    subprocess.run(["gcc", "-g", "-O1", "-fno-inline", "-o", folder / "p", folder / "p.c"], check=True)
    data = next(Archive.open(str(folder / "p")).iter_objects()).make_symcache().open_stream().read()
    names = subprocess.check_output(["nm", folder / "p"], text=True).splitlines()
    address = next(int(line.split()[0], 16) for line in names if line.endswith(" deep"))
    whole = zstandard.ZstdCompressor().compress(data)
    half = len(whole) // 2
    about = {"build_id": "gnu:aa", "version": 9, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return (
        [
            SymbolFile(**about, chunk=i, chunks=2, data=part)  # type: ignore[arg-type]
            for i, part in enumerate((whole[:half], whole[half:]))
        ],
        address,
    )


def announced(address: int, location: int) -> bytes:
    """An unnamed location of the program, and one past its end."""
    return stack_batch(
        {
            "location_id": [location, location + 1], "location_mapping": np.zeros(2),
            "location_address": [address, 2**40],
        },
        seen_unix_nano=time.time_ns(), mappings=[Mapping(kind=Mapping.FILE, build_id="gnu:aa", file="/p")],
    )  # fmt: skip


def test_locations_stored_before_and_after_their_symbols_came_are_named(
    in_process_broker: KafkaSettings, clients: Clients, program: tuple[list[SymbolFile], int], tmp_path: Path
) -> None:
    files, address = program
    settings = SinkSettings(
        kafka=in_process_broker.kafka, kafka_in_process=True, clickhouse=clients.dsn, symbol_cache=str(tmp_path),
        metrics_listen="", flush_s=0.2,
    )  # fmt: skip
    sender = producer(in_process_broker)

    def lines(location: int) -> list[tuple[str, int]]:
        rows = clients.get().query(f"SELECT lines FROM locations FINAL WHERE location_id = {location}").result_rows
        return [(line["function"], line["line"]) for row in rows for line in row[0]] if rows else [("absent", 0)]

    stop = threading.Event()
    running = service.start(settings, stop, clients)
    try:
        sender.produce(STACKS, announced(address, 100))
        sender.flush(PATIENCE_S)
        wait_until(lambda: lines(100) == [])
        sender.produce(SYMBOLS, SymbolFile(build_id="gnu:bb", version=1, size=5, chunks=1, data=b"x", sha256="")
                       .SerializeToString(), key=b"gnu:bb")  # fmt: skip
        sender.produce(SYMBOLS, b"\xff", key=b"gnu:aa")
        for file in files:
            sender.produce(SYMBOLS, file.SerializeToString(), key=b"gnu:aa")
        sender.flush(PATIENCE_S)
        wait_until(lambda: lines(100) == [("deep", 1)])
        assert lines(101) == []
        sender.produce(STACKS, announced(address, 200))
        sender.flush(PATIENCE_S)
        wait_until(lambda: lines(200) == [("deep", 1)])
        wait_until(lambda: running.problem() is None, running.problem)
    finally:
        stop.set()
        running.join(PATIENCE_S)


def test_names_that_kafka_did_not_take_are_published_again(
    program: tuple[list[SymbolFile], int], tmp_path: Path
) -> None:
    files, address = program
    symcaches = SymCaches(tmp_path)
    for file in files:
        symcaches.add(file)
    symbols = symcaches.get("gnu:aa")
    assert symbols is not None
    nowhere = producer(KafkaSettings(kafka="127.0.0.1:1"), **MAY_REPEAT | {"message.timeout.ms": 10, "log_level": 0})
    sink = ResolveSink(Clients("chdb://nowhere"), symcaches, nowhere)
    for _ in range(2):
        with pytest.raises(KafkaException):
            sink._name("gnu:aa", symbols, [Location(100, Mapping.FILE, "/p", address, 7)])


def test_names_of_many_locations_are_split_into_messages_that_fit() -> None:
    named = [
        (
            Location(i + 1, 1, "/bin/" + "x" * 100, i, 7),
            LocationNames(3, (Line("f" * 1024, "g" * 1024, i, 1),) * 4),
        )
        for i in range(900)
    ]
    messages = stack_batches("gnu:aa", named)
    assert len(messages) > 1
    assert max(map(len, messages)) < MAX_MESSAGE_BYTES
    parsed = [StackBatch.FromString(message) for message in messages]
    assert [i for m in parsed for i in m.location_id] == list(range(1, 901))
    assert {v for m in parsed for v in m.location_version} == {3}
