"""What is remembered of files and requests: it has a bounded size, however long paths and build IDs are."""

from pathlib import Path

import pytest

from collector.delivery.message_log import Message
from collector.delivery.publisher import SpoolPublisher
from collector.delivery.spool import Spool
from collector.processes.file_owner import ROOT
from collector.processes.mapped_files import MapsEntry
from collector.settings import CollectorSettings
from collector.symbols import symbol_files, symbol_responder
from collector.symbols.request_queue import QueuedRequest
from collector.symbols.symbol_files import MAX_BYTES, MAX_ENTRIES, MAX_USERS, SymbolFiles
from collector.symbols.symbol_responder import SymbolResponder
from icestream.v1.symbols_pb2 import SymbolRequest


def entry(pid: int, path: str) -> MapsEntry:
    return MapsEntry(pid, 0, 4096, 1, pid, path)


def test_the_latest_entries_of_a_file_come_first() -> None:
    files = SymbolFiles()
    for pid in (*range(6), 5):
        files.add("gnu:01", ROOT, entry(pid, "/a"))
    assert [each.pid for each in files.entries("gnu:01")] == [5, 4, 3, 2]
    assert files.entries("gnu:02") == []


def test_files_with_long_paths_take_the_bytes_that_are_allowed_and_the_latest_are_known() -> None:
    files = SymbolFiles()
    for number in range(3_000):
        for copy in range(MAX_ENTRIES):
            files.add(f"gnu:{number}", ROOT, entry(copy, f"/{number}-{copy}".ljust(4_095, "x")))
    texts = sum(len(each.path) for _, seen in files._seen.items() for each in seen.entries)
    assert MAX_BYTES / 2 < texts < MAX_BYTES
    assert len(files.entries("gnu:2999")) == MAX_ENTRIES
    assert files.entries("gnu:0") == []


def test_a_request_that_is_repeated_while_it_is_answered_is_not_answered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the next one is taken long after."""
    monkeypatch.setattr(symbol_responder, "_REPEAT_S", 0.0)
    settings = CollectorSettings(kafka="127.0.0.1:1", host_id="me", spool=tmp_path, symbol_store=str(tmp_path))
    spool = Spool(settings.spool, 1 << 20)
    responder = SymbolResponder(settings, SpoolPublisher(settings, spool), SymbolFiles())
    request = SymbolRequest(build_id="gnu:01", host_id="me", requested_unix_nano=2**62).SerializeToString()
    monkeypatch.setattr(responder, "_answer", lambda builder, taken: responder._note(request))
    responder._note(request)
    assert responder._answer_next(responder._builder, large=False)
    assert not responder._answer_next(responder._builder, large=False)
    spool.close()


def test_requests_with_long_build_ids_take_the_bytes_that_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = CollectorSettings(kafka="127.0.0.1:1", host_id="me", spool=tmp_path, symbol_store=str(tmp_path))
    spool = Spool(settings.spool, 1 << 20)
    responder = SymbolResponder(settings, SpoolPublisher(settings, spool), SymbolFiles())
    answered: list[str] = []
    monkeypatch.setattr(responder, "_answer", lambda builder, request: answered.append(request.build_id[:5]))
    for number in (*range(100), 99, 0):
        request = SymbolRequest(build_id=f"{number:05}".ljust(100_000, "x"), host_id="me", requested_unix_nano=2**62)
        responder._note(request.SerializeToString())
        responder._answer_next(responder._builder, large=False)
    assert answered == [f"{number:05}" for number in (*range(100), 0)]  # the first one is forgotten, not the last
    assert responder._answered.bytes <= symbol_responder._ANSWERED_BYTES
    spool.close()


def test_an_error_of_an_interrupted_answer_is_not_published(tmp_path: Path) -> None:
    """It says nothing about the file, which the next start of the collector may name."""
    settings = CollectorSettings(kafka="127.0.0.1:1", host_id="me", spool=tmp_path, symbol_store=str(tmp_path))
    spool = Spool(settings.spool, 1 << 20)
    sent: list[Message] = []
    publisher = SpoolPublisher(settings, spool)
    publisher.send = sent.append  # type: ignore[method-assign]
    responder = SymbolResponder(settings, publisher, SymbolFiles())
    builder, request = responder._builder, QueuedRequest("gnu:01", "/gone", None, 0)
    responder._answer(builder, request)
    assert len(sent) == 1
    builder.interrupt()
    responder._stop.set()
    responder._answer(builder, request)
    assert len(sent) == 1
    builder.end_children()
    spool.close()


def test_of_very_many_users_of_a_program_the_latest_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones would otherwise keep all others out."""
    monkeypatch.setattr(symbol_files, "user_of", lambda pid: pid)
    files = SymbolFiles()
    for pid in range(120):
        files.add("gnu:01", ROOT, MapsEntry(pid, 0, 1, 0, 1, "/bin/some"))
    assert files.users("gnu:01") == tuple(range(120 - MAX_USERS, 120))
