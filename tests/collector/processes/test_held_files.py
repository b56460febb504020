"""Descriptors that are kept for a while."""

import os
from pathlib import Path

import pytest

from collector.processes import held_files
from collector.processes.held_files import HeldFiles
from tests.open_files import open_files

ME = os.getpid()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time; what it is set to."""
    time = [1000.0]
    monkeypatch.setattr(held_files.time, "monotonic", lambda: time[0])
    return time


def opened(path: Path) -> int:
    path.write_text(path.name)
    return os.open(path, os.O_RDONLY)


def content(files: HeldFiles, build_id: str) -> str | None:
    descriptor = files.open(build_id)
    if descriptor is None:
        return None
    try:
        return os.pread(descriptor, 100, 0).decode()
    finally:
        os.close(descriptor)


def test_a_file_can_be_opened_after_it_is_gone_until_nobody_has_mapped_it_for_minutes(
    tmp_path: Path, now: list[float]
) -> None:
    files = HeldFiles()
    files.keep("gnu:aa", opened(tmp_path / "aa"), ME)
    (tmp_path / "aa").unlink()
    now[0] += held_files.KEEP_S - 1
    assert files.touch("gnu:aa", ME)
    now[0] += held_files.KEEP_S - 1
    files.expire()
    assert content(files, "gnu:aa") == "aa"
    now[0] += held_files.KEEP_S
    files.expire()
    assert content(files, "gnu:aa") is None
    assert not files.touch("gnu:aa", ME)
    assert open_files(str(tmp_path)) == []


def test_the_files_seen_last_are_held(tmp_path: Path, now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_files, "MAX_HELD", 2)
    files = HeldFiles()
    for name in ("a", "b"):
        files.keep(name, opened(tmp_path / name), ME)
        now[0] += 1
    files.keep("c", opened(tmp_path / "c"), ME)
    assert [content(files, name) for name in "abc"] == ["a", "b", None]  # all are in use: none makes room
    assert files.touch("c", ME)
    now[0] += 60
    files.touch("a", ME)
    files.keep("c", opened(tmp_path / "c"), ME)
    assert [content(files, name) for name in "abc"] == ["a", None, "c"]
    files.close()
    assert len(files) == 0


def test_a_user_who_maps_many_files_leaves_room_for_those_of_others(
    tmp_path: Path, now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_files, "MAX_HELD", 8)
    monkeypatch.setattr(held_files, "effective_user_of", lambda pid: pid)
    attacker, victim = 1000, 1001
    files = HeldFiles()
    for number in range(20):
        files.keep(f"crafted {number}", opened(tmp_path / f"crafted {number}"), attacker)
    for number in range(4):
        assert not files.touch(f"program {number}", victim)  # there is room
        files.keep(f"program {number}", opened(tmp_path / f"program {number}"), victim)
    now[0] += 60
    for number in range(20, 40):
        files.keep(f"crafted {number}", opened(tmp_path / f"crafted {number}"), attacker)
    assert [content(files, f"program {number}") for number in range(4)] == [f"program {number}" for number in range(4)]
    assert len(files) == 8
    files.close()
    assert open_files(str(tmp_path)) == []
