"""Requests for symbols: answered when they are for this host, whatever else is in the topic."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from collector import elf
from collector.publish import Publisher
from collector.settings import CollectorSettings
from collector.spool import Spool
from collector.symbol_files import SymbolFiles
from collector.symbol_requests import SymbolRequests
from icestream.kafka import consumer, producer
from icestream.settings import KafkaSettings
from icestream.topics import SYMBOL_REQUESTS, SYMBOLS
from icestream.v1.symbols_pb2 import SymbolFile, SymbolRequest


@pytest.fixture
def asking(broker: KafkaSettings) -> Iterator[Producer]:
    made = producer(broker)
    yield made
    made.flush(5)


@pytest.fixture
def serving(broker: KafkaSettings, tmp_path: Path, asking: Producer) -> Iterator[None]:
    settings = CollectorSettings(
        kafka=broker.kafka, host_id="me", spool=tmp_path / "spool", symbol_store=str(tmp_path / "store")
    )
    ask(asking, "gnu:01", host="me")  # while the collector starts again
    spool = Spool(settings.spool, 1 << 20)
    publisher = Publisher(settings, spool)
    requests = SymbolRequests(settings, publisher, SymbolFiles())
    publisher.start()
    requests.start()
    yield
    requests.close()
    publisher.close()
    spool.close()


def ask(asking: Producer, build_id: str, host: str, file: str = "/gone", age_s: int = 0) -> None:
    requested = time.time_ns() - age_s * 10**9
    request = SymbolRequest(build_id=build_id, host_id=host, file=file, attempt=1, requested_unix_nano=requested)
    asking.produce(SYMBOL_REQUESTS, request.SerializeToString(), build_id)
    assert asking.flush(10) == 0


@pytest.mark.usefixtures("serving")
def test_what_is_asked_of_this_host_is_answered_and_nothing_else(
    broker: KafkaSettings, asking: Producer, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    subprocess.run(["gcc", "-x", "c", "-", "-o", program], input=b"int main(void) { return 0; }", check=True)
    with open(program, "rb") as file:
        build_id = elf.read_file(file.fileno()).build_id
    asking.produce(SYMBOL_REQUESTS, b"\xff garbage", build_id)
    asking.produce(SYMBOL_REQUESTS, None, build_id)
    ask(asking, "gnu:02", host="another")
    ask(asking, "gnu:03", host="me", age_s=3600)
    ask(asking, build_id, host="me", file=str(program))
    ask(asking, build_id, host="me", file=str(program))
    reading = consumer(broker, "test")
    reading.subscribe([SYMBOLS])
    answers: list[SymbolFile] = []
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        message = reading.poll(0.2)
        if message is not None and message.error() is None:
            answers.append(SymbolFile.FromString(message.value() or b""))
            if len(answers) == 2:
                deadline = min(deadline, time.monotonic() + 2)
    reading.close()
    by_id = {answer.build_id: answer for answer in answers}
    assert sorted(by_id) == sorted(["gnu:01", build_id])
    assert len(answers) == 2
    assert by_id["gnu:01"].error
    assert Path(by_id[build_id].uri).exists()
    assert {answer.host_id for answer in answers} == {"me"}
