"""Requests for symbols: answered when they are for this host, whatever else is in the topic."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from collector.delivery.publisher import SpoolPublisher
from collector.delivery.spool import Spool
from collector.elf import identity
from collector.processes.file_owner import ROOT
from collector.processes.mapped_files import MapsEntry
from collector.settings import CollectorSettings
from collector.symbols.name_kinds import DEBUG_INFO, STARTS, SYMBOL_TABLE
from collector.symbols.symbol_files import SymbolFiles
from collector.symbols.symbol_responder import SymbolResponder
from icestream.kafka.clients import producer
from icestream.settings import KafkaSettings
from icestream.topics import SYMBOL_REQUESTS, SYMBOLS
from icestream.v1.symbols_pb2 import SymbolFile, SymbolRequest
from tests.collector.slow_disk import slow_file
from tests.collector.symbols.http_server import Server, sending
from tests.pipeline.reading import follow
from tests.waiting import PATIENCE_S


@pytest.fixture
def asking(broker: KafkaSettings) -> Iterator[Producer]:
    made = producer(broker)
    yield made
    made.flush(5)


Serve = Callable[..., SymbolFiles]


@pytest.fixture
def serve(broker: KafkaSettings, tmp_path: Path) -> Iterator[Serve]:
    """Starts to serve; more settings may be given."""
    running: list[SymbolResponder | SpoolPublisher | Spool] = []

    def serve(**more: Any) -> SymbolFiles:
        store = str(tmp_path / "store")
        settings = CollectorSettings(
            kafka=broker.kafka, host_id="me", spool=tmp_path / "spool", symbol_store=store, **more
        )
        spool = Spool(settings.spool, 1 << 20)
        publisher = SpoolPublisher(settings, spool)
        files = SymbolFiles()
        responder = SymbolResponder(settings, publisher, files)
        running.extend((responder, publisher, spool))
        publisher.start()
        responder.start()
        return files

    yield serve
    for part in running:
        part.close()


def ask(asking: Producer, build_id: str, host: str, file: str = "/gone", age_s: int = 0) -> None:
    requested = time.time_ns() - age_s * 10**9
    request = SymbolRequest(build_id=build_id, host_id=host, file=file, attempt=1, requested_unix_nano=requested)
    asking.produce(SYMBOL_REQUESTS, request.SerializeToString(), build_id)
    assert asking.flush(PATIENCE_S) == 0


Answers = Callable[[int], list[SymbolFile]]


@pytest.fixture
def answers(broker: KafkaSettings) -> Iterator[Answers]:
    """Waits for so many answers, and those of a second more; those that were given before are not among them."""
    reading = follow(broker, SYMBOLS)

    def answers(count: int) -> list[SymbolFile]:
        found: list[SymbolFile] = []
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            message = reading.poll(0.2)
            if message is not None and message.error() is None:
                found.append(SymbolFile.FromString(message.value() or b""))
                if len(found) == count:
                    deadline = time.monotonic() + 1
        return sorted(found, key=lambda answer: answer.build_id)

    yield answers
    reading.close()


def compiled(path: Path, *flags: str) -> str:
    """Its build ID."""
    subprocess.run(["gcc", *flags, "-x", "c", "-", "-o", path], input=b"int main(void) { return 0; }", check=True)
    with open(path, "rb") as file:
        return identity.read_file(file.fileno()).build_id


def entry(path: Path) -> MapsEntry:
    status = path.stat()
    return MapsEntry(2**22 + 1, 0, 1, status.st_dev, status.st_ino, str(path))


def test_what_is_asked_of_this_host_is_answered_and_nothing_else(
    answers: Answers, asking: Producer, serve: Serve, tmp_path: Path
) -> None:
    build_id = compiled(tmp_path / "program")
    ask(asking, "gnu:01", host="me")  # while the collector starts again
    files = serve()
    files.add(build_id, ROOT, entry(tmp_path / "program"))
    asking.produce(SYMBOL_REQUESTS, b"\xff garbage", build_id)
    asking.produce(SYMBOL_REQUESTS, None, build_id)
    ask(asking, "gnu:02", host="another")
    ask(asking, "gnu:03", host="me", age_s=3600)
    ask(asking, build_id, host="me", file=str(tmp_path / "program"))
    ask(asking, build_id, host="me", file=str(tmp_path / "program"))
    found = answers(2)
    by_id = {answer.build_id: answer for answer in found}
    assert sorted(by_id) == sorted(["gnu:01", build_id])
    assert len(found) == 2
    assert by_id["gnu:01"].error
    assert Path(by_id[build_id].uri).exists()
    assert {answer.host_id for answer in found} == {"me"}


def test_a_request_among_thousands_for_other_hosts_is_answered_soon(
    answers: Answers, asking: Producer, serve: Serve
) -> None:
    """A hundred with each look, every half second and later every two, would take more than a minute."""
    serve()
    ask(asking, "gnu:01", host="me")
    answers(1)  # from now on, no message is skipped
    request = SymbolRequest(host_id="another", requested_unix_nano=time.time_ns())
    for _ in range(6_000):
        asking.produce(SYMBOL_REQUESTS, request.SerializeToString(), "gnu:02")  # in the same partition
    began = time.monotonic()
    ask(asking, "gnu:02", host="me")
    assert [answer.build_id for answer in answers(1)] == ["gnu:02"]
    assert time.monotonic() - began < 40


@pytest.mark.ebpf
@pytest.mark.parametrize("broker", ["in_process_broker"], indirect=True)  # the other would be started for this test
def test_a_large_file_whose_names_take_long_holds_up_no_small_one(
    answers: Answers, asking: Producer, serve: Serve, tmp_path: Path
) -> None:
    """It lies on a slow disk, so that it takes as long as is wanted."""
    program, copied = tmp_path / "program", tmp_path / "copied"
    small = compiled(program, f"-Wl,--build-id=0x{1:040x}")
    large = compiled(copied, f"-Wl,--build-id=0x{2:040x}")
    files = serve()
    with slow_file(tmp_path / "library", copied.read_bytes()) as library:
        files.add(large, ROOT, entry(library.path)._replace(end=1 << 29))
        files.add(small, ROOT, entry(program))
        library.slow()
        ask(asking, large, host="me", file=str(library.path))
        library.wait_for_reader()
        ask(asking, small, host="me", file=str(program))
        assert [answer.build_id for answer in answers(1)] == [small]
        library.pass_on()
        assert [(answer.build_id, answer.error) for answer in answers(1)] == [(large, "")]


def test_a_slow_debuginfod_holds_up_no_other_names_and_its_own_come_later(
    answers: Answers, asking: Producer, serve: Serve, tmp_path: Path
) -> None:
    named, stripped, other = tmp_path / "named", tmp_path / "stripped", tmp_path / "other"
    ids = {path: compiled(path, "-g", f"-Wl,--build-id=0x{i:040x}") for i, path in enumerate((named, stripped, other))}
    whole = {path: path.read_bytes() for path in ids}
    subprocess.run(["strip", "--strip-debug", named], check=True)
    subprocess.run(["strip", stripped], check=True)
    released = threading.Event()
    server = Server()

    def answer(request: BaseHTTPRequestHandler) -> None:
        released.wait(PATIENCE_S)
        path = next(path for path, build_id in ids.items() if build_id.removeprefix("gnu:") in request.path)
        sending(whole[path])(request)

    server.answer = answer
    files = serve(debuginfod_urls=server.url, debuginfod_cache=tmp_path / "cache")
    for path, build_id in ids.items():
        size = 1 << 29 if path == stripped else 1  # so two threads answer and ask for downloads
        files.add(build_id, ROOT, entry(path)._replace(end=size))
        ask(asking, build_id, host="me", file=str(path))
    before = answers(3)
    assert {(a.build_id, a.version, a.error) for a in before} == {
        (ids[named], SYMBOL_TABLE, ""), (ids[stripped], STARTS, ""), (ids[other], DEBUG_INFO, ""),
    }  # fmt: skip
    released.set()
    after = answers(2)
    assert {(a.build_id, a.version, a.error) for a in after} == {
        (ids[named], DEBUG_INFO, ""), (ids[stripped], DEBUG_INFO, ""),
    }  # fmt: skip
    server.close()


def test_what_debuginfod_does_not_have_is_an_answer(
    answers: Answers, asking: Producer, serve: Serve, tmp_path: Path
) -> None:
    stripped = tmp_path / "stripped"
    build_id = compiled(stripped, "-s")
    subprocess.run(["objcopy", "--remove-section", ".eh_frame", stripped], check=True)
    server = Server()
    files = serve(debuginfod_urls=server.url, debuginfod_cache=tmp_path / "cache")
    files.add(build_id, ROOT, entry(stripped))
    ask(asking, build_id, host="me", file=str(stripped))
    ask(asking, "gnu:" + "00" * 20, host="me", file="/never/seen/here")
    found = {a.build_id: a.error for a in answers(2)}
    assert found[build_id] == "the file names no function: it is stripped; debuginfod: no server has it"
    assert found["gnu:" + "00" * 20] == "the file is not on this host any more"
    assert len(server.asked) == 1
    server.close()
