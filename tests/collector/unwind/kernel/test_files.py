"""Which files' unwinding tables are in the kernel when there is no room for all. The maps are arrays here."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from collector.unwind.kernel import files as unwind_files
from collector.unwind.kernel.files import UnwindFiles
from collector.unwind.kernel.maps import CHUNK, MAX_CHUNKS, NOT_LOADED
from collector.unwind.kernel.rules import MAX_RULES_OF_FILE, KernelRules
from collector.unwind.tables.stored_rows import StoredRows
from collector.unwind.tables.table import RULE, UnwindTable, from_file, to_bytes
from tests.open_files import open_files

ROWS = 10_000


@dataclass
class Maps:
    """As UnwindMaps, in the memory of this process."""

    rows: int = ROWS
    chunks: np.ndarray = field(default_factory=lambda: np.zeros(MAX_CHUNKS, CHUNK))
    rules: np.ndarray = field(default_factory=lambda: np.zeros(1 << 14, RULE))
    written: int = 0
    evictions: int = 0

    def write_rows(self, start: int, rows: np.ndarray) -> None:
        assert start + len(rows) <= self.rows
        self.written += len(rows)

    def count_eviction(self) -> None:
        self.evictions += 1


@pytest.fixture
def maps() -> Maps:
    return Maps()


@pytest.fixture
def files(maps: Maps) -> UnwindFiles:
    return UnwindFiles(maps)  # type: ignore[arg-type]


def _table(rows: int, chunks: int = 1, rules: int = 2, first_rule: int = 0) -> UnwindTable:
    starts = np.linspace(0, rows, chunks + 1).astype(np.uint32)
    kinds = np.zeros(rules, RULE)
    kinds["cfa_offset"] = np.arange(first_rule, first_rule + rules)
    kinds["cfa_offset"][0] = 0  # unknown
    number = np.arange(rows, dtype=np.uint32)
    return UnwindTable(0, starts, number << 16 | number % rules, kinds)


def _load_chunk(files: UnwindFiles, chunk: int) -> None:
    missing = files.missing(chunk)
    if missing is not None:
        files.load(missing, missing.read())


def test_a_file_without_room_is_refused_and_does_not_evict_itself(files: UnwindFiles, maps: Maps) -> None:
    for number in range(3):
        file = files.add(f"old{number}", _table(3000))
        assert file
        file.users = 1
    assert files.add("new", _table(3000)) is None
    assert files.get("new") is None
    assert all(files.get(f"old{number}") for number in range(3))
    assert maps.written == 9000
    assert files.rows == 9000


def test_what_nobody_maps_makes_room_the_least_recently_used_first(files: UnwindFiles) -> None:
    for number in range(3):
        assert files.add(f"old{number}", _table(3000))
    files.get("old0")
    assert files.add("new", _table(3000))
    assert [files.get(name) is not None for name in ("old0", "old1", "old2", "new")] == [True, False, True, True]


def test_a_file_takes_half_of_the_rows_at_most(files: UnwindFiles) -> None:
    assert files.add("huge", _table(5001)) is None
    assert files.add("large", _table(5000)) is not None


def test_rules_of_files_that_are_gone_make_room_for_others(files: UnwindFiles, maps: Maps) -> None:
    """One crafted file after the other, each with rules of its own, had ended unwinding of new files."""
    for number in range(50):
        assert files.add(f"crafted{number}", _table(4096, rules=4096, first_rule=1 + 4096 * number)), number
    file = files.add("victim", _table(100, rules=3, first_rule=10**6))
    assert file
    assert maps.rules["cfa_offset"][file.rules].tolist() == [0, 10**6 + 1, 10**6 + 2]


def test_rules_that_processes_need_are_not_taken_from_them(files: UnwindFiles) -> None:
    for number in range(20):
        file = files.add(f"crafted{number}", _table(100, rules=4096, first_rule=1 + 4096 * number))
        if file:
            file.users = 1
    assert len(files) < 5
    assert files.add("other", _table(100, rules=100, first_rule=10**6)) is None


def test_one_file_does_not_fill_the_map_of_rules() -> None:
    rules = KernelRules(Maps())  # type: ignore[arg-type]
    rows = rules.add(_table(1, rules=10_000).rules)
    assert rows is not None
    assert len(rules) == MAX_RULES_OF_FILE
    assert not rows[MAX_RULES_OF_FILE:].any()


def test_rules_that_files_share_stay_while_one_needs_them() -> None:
    rules = KernelRules(Maps())  # type: ignore[arg-type]
    both = _table(1, rules=5).rules
    first, second = rules.add(both), rules.add(both)
    assert first is not None
    assert second is not None
    rules.release(first)
    assert len(rules) == 5
    rules.release(second)
    assert len(rules) == 1


def test_a_chunk_without_room_is_not_tried_at_every_request(
    files: UnwindFiles, maps: Maps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unwind_files, "EAGER_ROWS", 10)
    large = files.add("large", _table(4000, chunks=4))
    other = files.add("other", _table(4000, chunks=1))
    third = files.add("third", _table(4000, chunks=1))
    assert large
    assert other
    assert third
    large.users = other.users = third.users = 1
    for file in (other, third):
        _load_chunk(files, file.first_chunk)
    for chunk in range(large.first_chunk, large.first_chunk + 4):
        _load_chunk(files, chunk)
    refused = files.refused
    assert refused == 2
    for _ in range(100):
        _load_chunk(files, large.first_chunk + 3)
    assert files.refused == refused
    assert maps.chunks["first"][large.first_chunk + 3] == NOT_LOADED
    files.evict("other")
    later = time.monotonic() + 100
    monkeypatch.setattr(time, "monotonic", lambda: later)
    _load_chunk(files, large.first_chunk + 3)
    assert maps.chunks["first"][large.first_chunk + 3] != NOT_LOADED


def test_rows_of_a_large_file_stay_on_disk_until_a_walk_needs_them(
    files: UnwindFiles, maps: Maps, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(unwind_files, "EAGER_ROWS", 10)
    path = tmp_path / "table"
    path.write_bytes(to_bytes(_table(4000, chunks=4), "gnu:01"))
    with path.open("rb") as opened:
        table = from_file(opened.fileno(), "gnu:01")
    large = files.add("large", table)
    assert large
    assert isinstance(large.rows, StoredRows)
    assert not any(np.shares_memory(kept, table.rows) for kept in vars(large).values() if isinstance(kept, np.ndarray))
    assert not np.shares_memory(large.chunk_start, table.chunk_start)
    del table
    assert maps.written == 0
    _load_chunk(files, large.first_chunk + 2)
    assert maps.written == 1000
    assert maps.chunks["count"][large.first_chunk : large.first_chunk + 4].tolist() == [0, 0, 1000, 0]
    os.truncate(path, 1000)  # it should never happen
    missing = files.missing(large.first_chunk + 3)
    assert missing
    with pytest.raises(OSError, match="cut"):
        missing.read()
    files.load(missing, None)
    assert files.missing(large.first_chunk + 3) is None
    assert maps.chunks["first"][large.first_chunk + 3] == NOT_LOADED
    assert len(open_files(str(path))) == 1
    del large, missing
    files.evict("large")
    assert open_files(str(path)) == []


@pytest.mark.parametrize("again", [False, True])
def test_rows_of_a_file_that_went_while_they_were_read_are_not_loaded(
    files: UnwindFiles, maps: Maps, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    monkeypatch.setattr(unwind_files, "EAGER_ROWS", 10)
    large = files.add("large", _table(4000, chunks=4))
    assert large
    missing = files.missing(large.first_chunk + 1)
    assert missing
    rows = missing.read()
    files.evict("large")
    if again:
        assert files.add("large", _table(4000, chunks=4))
    files.load(missing, rows)
    assert maps.written == 0
    assert files.rows == 0
    assert (maps.chunks["first"][large.first_chunk : large.first_chunk + 4] == NOT_LOADED).all()


def test_a_chunk_that_was_read_twice_takes_its_room_once(
    files: UnwindFiles, maps: Maps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unwind_files, "EAGER_ROWS", 10)
    large = files.add("large", _table(4000, chunks=4))
    assert large
    missing = files.missing(large.first_chunk + 1)
    assert missing
    for _ in range(2):
        files.load(missing, missing.read())
    assert files.rows == maps.written == 1000
