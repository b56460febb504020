"""What a worker reads of icestream.symbols."""

from contextlib import closing
from pathlib import Path

import pytest

from icestream.settings import KafkaSettings
from icestream.symbols.symcache import SymCaches
from icestream.topics import SYMBOLS
from icestream.v1.symbols_pb2 import SymbolFile
from streams.symbols import symbol_reader
from streams.symbols.symbol_reader import SymbolReader
from tests.changed_kafka import add_partitions
from tests.sinks.running import send
from tests.waiting import PATIENCE_S, wait_until


@pytest.mark.kafka
def test_partitions_that_are_added_are_read_as_well(
    apache_kafka: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(symbol_reader, "_PARTITIONS_S", 0.2)
    received: list[SymbolFile] = []
    with closing(SymbolReader(apache_kafka, SymCaches(tmp_path), received.append)) as reader:
        assert reader.caught_up.wait(PATIENCE_S)
        add_partitions(apache_kafka, 6, SYMBOLS)
        send(apache_kafka, SYMBOLS, SymbolFile(build_id="gnu:aa", error="gone").SerializeToString(), partition=5)
        wait_until(lambda: [file.build_id for file in received] == ["gnu:aa"], lambda: received)
