"""Which request for symbols is answered next."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from collector import metrics
from collector.processes.file_owner import ROOT
from collector.processes.mapped_files import MapsEntry
from collector.symbols.request_queue import MAX_BYTES, QueuedRequest, RequestQueue
from collector.symbols.symbol_files import SymbolFiles
from tests.collector.activity.flooding import ATTACKER, OTHER


def entry(pid: int, name: str, size: int = 1 << 12) -> MapsEntry:
    return MapsEntry(pid, 0x1000, 0x1000 + size, 8, 1, f"/{name}")


@contextmanager
def running(user: int) -> Iterator[int]:
    """A process of that user; its ID."""
    command = [shutil.which("cat", path="/usr/bin:/bin") or "cat"]
    with subprocess.Popen(
        command, user=user, group=user, extra_groups=[], cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def queue(**mapped_bytes: int) -> RequestQueue:
    """A queue on a host that has files of these sizes mapped."""
    files = SymbolFiles()
    for name, size in mapped_bytes.items():
        files.add(name, ROOT, entry(os.getpid(), name, size))
    return RequestQueue(files)


def taken(waiting: RequestQueue, large: bool = False) -> list[str]:
    """The build IDs of all requests that wait, in the order in which they are taken."""
    return [request.build_id for request in iter(lambda: waiting.pop(large), None)]


def test_the_smallest_file_and_the_oldest_request_take_turns() -> None:
    waiting = queue(library=1 << 24, program=1 << 12, middle=1 << 20, other=1 << 18)
    for name in ("middle", "library", "other", "program"):
        waiting.put(name, f"/{name}")
    assert taken(waiting) == ["program", "middle", "other", "library"]


def test_ever_new_small_programs_do_not_keep_a_larger_file_waiting() -> None:
    """Its request is repeated meanwhile, and keeps its place."""
    waiting = queue(victim=1 << 20, **{f"new{i}": 1 << 12 for i in range(8)})
    waiting.put("new0", "/new0")
    waiting.put("victim", "/victim")
    answered = []
    for i in range(1, 8):
        waiting.put(f"new{i}", f"/new{i}")
        waiting.put("victim", "/victim")
        request = waiting.pop(large=False)
        assert request
        answered.append(request.build_id)
        if request.build_id == "victim":
            break
    assert len(answered) <= 4


def test_large_files_and_those_of_unknown_size_are_taken_apart_from_the_others() -> None:
    waiting = queue(browser=1 << 28, library=1 << 26, program=1 << 12)
    for name in ("browser", "library", "program", "unknown"):
        waiting.put(name, f"/{name}")
    waiting.put("kernel", "[kernel]")
    assert waiting.has_large()
    assert taken(waiting, large=True) == ["library", "unknown", "browser"]
    assert not waiting.has_large()
    assert taken(waiting) == ["kernel", "program"]


def test_a_downloaded_file_waits_by_its_size_and_no_repeat_of_its_request_replaces_it() -> None:
    waiting = queue(library=1 << 26, program=1 << 12)
    for name, error in (("library", ""), ("program", "debuginfod: no server has it")):
        waiting.put(name, f"/{name}", error)
        waiting.put(name, f"/{name}")
        waiting.drop_repeat(name)
    assert [waiting.pop(large) for large in (True, False)] == [
        QueuedRequest("library", "/library", "", 0),
        QueuedRequest("program", "/program", "debuginfod: no server has it", 2),
    ]


def test_a_repeat_of_what_was_just_answered_is_dropped() -> None:
    waiting = queue(program=1 << 12)
    waiting.put("program", "/program")
    assert waiting.pop(large=False)
    waiting.put("program", "/program")
    waiting.drop_repeat("program")
    assert waiting.pop(large=False) is None


def test_a_request_that_is_repeated_waits_once_and_a_flood_is_bounded() -> None:
    waiting = queue()
    for i in range(20_000):
        waiting.put(f"gnu:{i:040x}", "[" + "x" * 100)
        waiting.put("gnu:again", "[again")
    assert waiting.bytes() <= MAX_BYTES
    build_ids = [request.build_id for _ in range(20) if (request := waiting.pop(large=False))]
    assert len(set(build_ids)) == len(build_ids) == 20


@pytest.mark.ebpf  # processes of other users need root
def test_a_user_with_thousands_of_programs_does_not_hold_up_the_names_of_another() -> None:
    files = SymbolFiles()
    waiting = RequestQueue(files)
    dropped = metrics.SYMBOL_REQUESTS.labels("dropped")._value.get()
    with running(ATTACKER) as attacker, running(OTHER) as victim:
        for i in range(5_000):
            files.add(f"gnu:{i:040x}", ROOT, entry(attacker, f"home/{i}"))
            waiting.put(f"gnu:{i:040x}", f"/home/{i}")
        for name in ("first", "second", "third"):
            files.add(name, ROOT, entry(victim, name, 1 << 20))
            waiting.put(name, f"/{name}")
        for i in range(5_000, 10_000):
            files.add(f"gnu:{i:040x}", ROOT, entry(attacker, f"home/{i}"))
            waiting.put(f"gnu:{i:040x}", f"/home/{i}")
    assert waiting.bytes() <= MAX_BYTES
    assert metrics.SYMBOL_REQUESTS.labels("dropped")._value.get() > dropped + 1_000
    assert [request.build_id for _ in range(6) if (request := waiting.pop(False)) and request.path[:3] != "/ho"] == [
        "first", "second", "third",
    ]  # fmt: skip


@pytest.mark.ebpf
def test_a_user_who_runs_the_programs_of_others_does_not_hold_up_their_names() -> None:
    files = SymbolFiles()
    waiting = RequestQueue(files)
    with running(ATTACKER) as attacker, running(OTHER) as victim:
        for i in range(500):
            files.add(f"program {i}", ROOT, entry(attacker, f"{i}"))
            waiting.put(f"program {i}", f"/{i}")
        files.add("shared", ROOT, entry(attacker, "shared", 1 << 20))
        waiting.put("shared", "/shared")
        files.add("shared", ROOT, entry(victim, "shared", 1 << 20))
        waiting.put("shared", "/shared")
    assert "shared" in [request.build_id for _ in range(2) if (request := waiting.pop(False))]


@pytest.mark.ebpf
def test_one_request_after_the_other_and_repeats_do_not_keep_others_waiting() -> None:
    """The victim's only request is repeated more often than any is answered."""
    files = SymbolFiles()
    waiting = RequestQueue(files)
    with running(ATTACKER) as attacker, running(OTHER) as victim:
        files.add("victim", ROOT, entry(victim, "victim", 1 << 20))
        answered = []
        for i in range(4):
            files.add(f"program {i}", ROOT, entry(attacker, f"{i}"))
            waiting.put(f"program {i}", f"/{i}")
            waiting.put("victim", "/victim")
            waiting.put("victim", "/victim")
            request = waiting.pop(False)
            assert request
            answered.append(request.build_id)
            if request.build_id == "victim":
                break
    assert "victim" in answered[:2]


def test_users_take_turns_also_among_large_files_and_those_without_a_user_are_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = SymbolFiles()
    owners = {"a1": (1,), "a2": (1,), "a3": (1,), "b1": (2,), "[kernel]": (), "[vdso]": ()}
    monkeypatch.setattr(files, "users", owners.__getitem__)
    waiting = RequestQueue(files)
    for name in owners:
        waiting.put(name, name)
    assert taken(waiting) == ["a1", "b1", "[kernel]", "a2", "[vdso]", "a3"]
