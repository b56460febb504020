"""Descriptors that are kept for a while."""

import os
from pathlib import Path

import pytest

from collector.processes import held_files
from collector.processes.held_files import HeldFiles
from tests.open_files import open_files


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
    files.keep("gnu:aa", opened(tmp_path / "aa"))
    (tmp_path / "aa").unlink()
    now[0] += held_files.KEEP_S - 1
    assert files.touch("gnu:aa")
    now[0] += held_files.KEEP_S - 1
    files.expire()
    assert content(files, "gnu:aa") == "aa"
    now[0] += held_files.KEEP_S
    files.expire()
    assert content(files, "gnu:aa") is None
    assert not files.touch("gnu:aa")
    assert open_files(str(tmp_path)) == []


def test_the_files_seen_last_are_held(tmp_path: Path, now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_files, "MAX_HELD", 2)
    files = HeldFiles()
    for name in ("a", "b"):
        files.keep(name, opened(tmp_path / name))
        now[0] += 1
    files.keep("c", opened(tmp_path / "c"))
    assert [content(files, name) for name in "abc"] == ["a", "b", None]  # all are in use: none makes room
    assert files.touch("c")
    now[0] += 60
    files.touch("a")
    files.keep("c", opened(tmp_path / "c"))
    assert [content(files, name) for name in "abc"] == ["a", None, "c"]
    files.close()
    assert len(files) == 0
