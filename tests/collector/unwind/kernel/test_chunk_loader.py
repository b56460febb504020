"""Rows that lie on a slow disk hold up nothing but themselves. Real eBPF maps, and a real disk that waits."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from collector.bpf.program import ProfileProgram
from collector.processes.mapped_files import MappedFile
from collector.processes.mapped_ranges import MappedRange
from collector.processes.process import read_process
from collector.unwind.kernel import files as unwind_files
from collector.unwind.kernel.maps import NOT_LOADED
from collector.unwind.tables.cache import TableCache
from collector.unwind.tables.table import RULE, UnwindTable, from_file, to_bytes
from collector.unwind.unwinding import Unwinding
from icestream.v1.common_pb2 import Mapping
from tests.collector.slow_disk import LONGEST_S, SlowFile, slow_file
from tests.waiting import wait_until

pytestmark = pytest.mark.ebpf

CHUNKS, ROWS = 4, 4000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SlowFile]:
    with slow_file(tmp_path / "table", to_bytes(_table(), "large")) as file:
        yield file


@pytest.fixture(scope="module")
def program() -> Iterator[ProfileProgram]:
    """Its maps. It is attached to nothing, so that only user space reads them."""
    loaded = ProfileProgram(10**9, "auto", {"rows": 64})
    yield loaded
    loaded.close()


@pytest.fixture
def unwinding(program: ProfileProgram, disk: SlowFile, monkeypatch: pytest.MonkeyPatch) -> Iterator[Unwinding]:
    with _unwinding(program, disk, monkeypatch) as unwinding:
        yield unwinding


@contextmanager
def _unwinding(program: ProfileProgram, disk: SlowFile, monkeypatch: pytest.MonkeyPatch) -> Iterator[Unwinding]:
    """Has the table of a large file, whose rows are on the disk, which is slow from now on."""
    monkeypatch.setattr(unwind_files, "EAGER_ROWS", 10)
    unwinding = Unwinding(program, TableCache(None), lambda build_id: None)
    unwinding._maps.mappings[:] = 0  # as those of a program that was just loaded
    unwinding._maps.chunks[:] = 0
    unwinding.start()
    _maps(unwinding, os.getpid(), "large")
    with disk.path.open("rb", buffering=0) as opened:
        unwinding._add("large", from_file(opened.fileno(), "large"))
    disk.slow()
    try:
        yield unwinding
    finally:
        unwinding.close()


def _table() -> UnwindTable:
    starts = np.linspace(0, ROWS, CHUNKS + 1).astype(np.uint32)
    return UnwindTable(0, starts, np.arange(ROWS, dtype=np.uint32) << 16, np.zeros(1, RULE))


def _maps(unwinding: Unwinding, pid: int, build_id: str) -> None:
    process = read_process(pid)
    assert process
    file = MappedFile(Mapping.FILE, build_id, build_id)
    unwinding.changed(process, [MappedRange(4096, 8192, 0, file, build_id, False, None)])


def _chunk(unwinding: Unwinding) -> int:
    file = unwinding._files.get("large")
    assert file
    return file.first_chunk


def test_a_slow_disk_holds_up_no_other_process(unwinding: Unwinding, disk: SlowFile) -> None:
    first = _chunk(unwinding)
    for _ in range(1000):  # as walks ask while there is no answer
        unwinding.load_chunk(first)
        unwinding.load_chunk(first + 2)
    disk.wait_for_reader()
    with ExitStack() as running:
        for number in range(3):
            other = running.enter_context(subprocess.Popen(["sleep", "1000"]))
            running.callback(other.kill)
            _maps(unwinding, other.pid, f"program{number}")
            unwinding._add(f"program{number}", UnwindTable(0, *_table_of_ten_rows()))
            assert unwinding.ready(other.pid)
            unwinding.ended(other.pid)
    first_rows = unwinding._maps.chunks["first"]
    assert first_rows[first : first + CHUNKS].tolist() == [NOT_LOADED] * CHUNKS  # the disk has not answered
    disk.pass_on()
    wait_until(lambda: first_rows[first] != NOT_LOADED and first_rows[first + 2] != NOT_LOADED)
    assert unwinding._maps.chunks["count"][first : first + CHUNKS].tolist() == [1000, 0, 1000, 0]
    assert unwinding._files.rows == 2000 + 3 * 10


def test_a_file_that_goes_while_its_rows_are_read_takes_no_room(unwinding: Unwinding, disk: SlowFile) -> None:
    first = _chunk(unwinding)
    unwinding.load_chunk(first)
    disk.wait_for_reader()
    unwinding.ended(os.getpid())
    with unwinding._lock:
        unwinding._files.evict("large")
    disk.pass_on()
    wait_until(lambda: not unwinding._chunks._waiting)
    assert unwinding._files.rows == 0


def test_a_collector_ends_while_the_disk_does_not_answer(
    program: ProfileProgram, disk: SlowFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _unwinding(program, disk, monkeypatch) as unwinding:
        unwinding.load_chunk(_chunk(unwinding))
        disk.wait_for_reader()
        began = time.monotonic()
    assert time.monotonic() - began < LONGEST_S / 2


def _table_of_ten_rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.array([0, 10], np.uint32), np.arange(10, dtype=np.uint32) << 16, np.zeros(1, RULE)
