"""Perf maps are read by a child that has no rights; what it does not survive costs one process its names."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector import metrics
from collector.processes import patience, perfmap_reader
from collector.processes.jit_name import JitName
from collector.processes.mapped_files import FileCache
from collector.processes.mappings import ProcessMappings
from collector.processes.patience import Patience
from collector.processes.perfmap import PerfMaps
from collector.processes.perfmap_lines import MAX_LINE
from collector.processes.perfmap_messages import (
    MAX_ANSWER_BYTES,
    MAX_NAMES,
    LinesJob,
    NamesJob,
    PerfMapAnswerError,
    encode_names,
)
from collector.processes.perfmap_reader import MAX_FAILURES, Owner, PerfMapError, PerfMapReader
from tests.collector.activity.flooding import ATTACKER, OTHER
from tests.collector.slow_disk import slow_file
from tests.examples import examples
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

COMPILING = """
import ctypes, mmap, os, sys
memory = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
                   prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
print(address, flush=True)
sys.stdin.readline()
"""
LYING = """
import os, sys
from collector.guest.confined_jobs import ChildLimits, serve
from collector.processes.perfmap_child import SIZE
def answer(job, descriptors):
    return SIZE.pack(os.pwrite(descriptors[1], {}, 0) + {})
sys.exit(serve(answer, ChildLimits(1 << 30, 1 << 30, 60, 60.0), says_ready=True))
"""


@pytest.fixture
def reader() -> Iterator[PerfMapReader]:
    made = PerfMapReader()
    made.child.timeout_s = PATIENCE_S
    yield made
    made.close()


@contextmanager
def compiling(user: int) -> Iterator[tuple[int, int, Path]]:
    """A process of that user with code that was compiled at run time: its ID, where the code is, and its perf map."""
    # The system's interpreter: that user may not be permitted to read the one of the tests.
    command = [shutil.which("python3", path="/usr/bin") or sys.executable, "-c", COMPILING]
    with subprocess.Popen(
        command, user=user, group=user, extra_groups=[], cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        perf_map = Path(f"/tmp/perf-{process.pid}.map")
        try:
            address = int(process.stdout.readline())
            perf_map.touch()
            os.chown(perf_map, user, user)
            yield process.pid, address, perf_map
        finally:
            process.kill()
            perf_map.unlink(missing_ok=True)


def process_with(root: Path, pid: int) -> Path:
    """Makes the folder of a process; returns the path of its perf map."""
    folder = root / str(pid) / "root" / "tmp"
    folder.mkdir(parents=True)
    (root / str(pid) / "status").write_text(f"Uid:\t0\t0\t0\t{os.geteuid()}\nNSpid:\t{pid}\n")
    return folder / f"perf-{pid}.map"


def named(maps: PerfMaps, pid: int, address: int) -> JitName | None:
    maps.get(pid).refresh()
    rows, names = maps.get(pid).lookup(np.array([address], np.uint64))
    return names[rows[0]] if rows[0] >= 0 else None


def running(reader: PerfMapReader) -> int:
    assert reader.child.process
    return reader.child.process.pid


@pytest.mark.ebpf
def test_while_one_user_hangs_the_child_the_code_of_another_keeps_its_names() -> None:
    known = ProcessMappings(FileCache())
    reader = known._perf_maps._reader
    reader.child.timeout_s = PATIENCE_S

    def name(pid: int, address: int) -> str:
        known.notice(pid)
        found = known.locate(pid, np.array([address], np.uint64))
        return found.names[int(found.name[0])].function if found.name[0] >= 0 else ""

    with compiling(ATTACKER) as (attacker, its_code, hostile), compiling(OTHER) as (victim, code, perf_map):
        perf_map.write_text(f"{code:x} 100 victim\n")
        assert name(victim, code) == "victim"
        failed = metrics.PERF_MAPS_FAILED._value.get()
        hostile.write_text(f"{its_code:x} 1000 attacker\n")
        os.kill(running(reader), signal.SIGSTOP)
        reader.child.timeout_s = 0.2
        assert name(attacker, its_code) == ""
        reader.child.timeout_s = PATIENCE_S
        with perf_map.open("a") as file:
            file.write(f"{code + 0x100:x} 100 compiled later\n")
        assert [name(victim, code), name(victim, code + 0x100)] == ["victim", "compiled later"]
        assert name(attacker, its_code) == ""  # it is not tried again
        assert metrics.PERF_MAPS_FAILED._value.get() == failed + 1
    known.close()


@pytest.mark.ebpf
def test_hostile_perf_maps_of_one_user_do_not_reach_another(tmp_path: Path) -> None:
    known = ProcessMappings(FileCache())
    known._perf_maps._reader.child.timeout_s = PATIENCE_S
    with compiling(ATTACKER) as (attacker, its_code, hostile), compiling(OTHER) as (victim, code, perf_map):
        overlapping = "".join(f"{its_code + i % 4096:x} {1 + i % 4096:x} {i}\n" for i in range(30_000))
        hostile.write_bytes(
            b"\0" * 3_000_000 + b"\n" * 100_000 + overlapping.encode() + b"%x 1000 \x01\xff\0\n" % its_code
        )
        perf_map.write_text(f"{code:x} 100 victim\n{its_code:x} 100 not the attacker's\n")
        for pid in (attacker, victim):
            known.notice(pid)
        found = known.locate(attacker, np.array([its_code, code], np.uint64))
        assert [found.names[row].function for row in found.name.tolist() if row >= 0] == ["\x01\ufffd\0"]
        found = known.locate(victim, np.array([code], np.uint64))
        assert found.names[int(found.name[0])].function == "victim"
    known.close()


def test_the_child_has_no_capability_and_is_under_seccomp(reader: PerfMapReader, tmp_path: Path) -> None:
    process_with(tmp_path, 1).write_text("1000 10 one\n")
    assert named(PerfMaps(reader, str(tmp_path)), 1, 0x1000) == JitName("one", "")
    lines = Path(f"/proc/{running(reader)}/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    assert {int(status[each], 16) for each in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}
    assert (status["Seccomp"].strip(), status["NoNewPrivs"].strip()) == ("2", "1")


@pytest.mark.ebpf
def test_a_child_that_waits_for_a_disk_is_left_to_it_and_another_one_reads_on(
    reader: PerfMapReader, tmp_path: Path
) -> None:
    maps = PerfMaps(reader, str(tmp_path))
    process_with(tmp_path, 2).write_text("1000 10 two\n")
    with slow_file(process_with(tmp_path, 1), b"1000 10 one\n") as disk:
        assert named(maps, 2, 0x1000) == JitName("two", "")
        first = running(reader)
        disk.slow()
        reader.child.timeout_s = 0.5
        assert named(maps, 1, 0x1000) is None
        reader.child.timeout_s = PATIENCE_S
        with (tmp_path / "2" / "root" / "tmp" / "perf-2.map").open("a") as file:
            file.write("2000 10 later\n")
        assert named(maps, 2, 0x2000) == JitName("later", "")
        assert running(reader) != first


@pytest.mark.ebpf
def test_a_perf_map_that_cannot_be_closed_holds_up_nobody(
    reader: PerfMapReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "mount_of", lambda pid, path: path)
    waiting = Patience(0.2)
    maps = PerfMaps(reader, str(tmp_path), waiting)
    process_with(tmp_path, 2).write_text("1000 10 two\n")
    with slow_file(process_with(tmp_path, 1), b"1000 10 one\n2000 10 other\n", flushed=True) as disk:
        assert named(maps, 1, 0x1000) == JitName("one", "")
        disk.stuck()
        reader.child.timeout_s = 0.5
        assert named(maps, 1, 0x2000) is None  # the child waits, too, and is left to it
        reader.child.timeout_s = waiting._give_up_s = PATIENCE_S
        maps.forget(1)
        assert named(maps, 2, 0x1000) == JitName("two", "")
    wait_until(lambda: not waiting._hanging)
    waiting.close()


@pytest.mark.parametrize(
    ("data", "more"),
    [("b''", 1), ("b'nothing'", 0), ("b'[' * 100000", 0), ("bytes(1 << 22)", 0), ("bytes(64)", 1 << 20)],
)
def test_a_child_that_lies_is_ended_and_the_next_one_reads_the_other_files(
    reader: PerfMapReader, tmp_path: Path, data: str, more: int
) -> None:
    for pid in (1, 2):
        process_with(tmp_path, pid).write_text("1000 10 true\n")
    maps, command = PerfMaps(reader, str(tmp_path)), reader.child.command
    reader.child.command = ["-c", LYING.format(data, more)]
    assert named(maps, 1, 0x1000) is None
    reader.child.command = command
    assert named(maps, 2, 0x1000) == JitName("true", "")
    assert named(maps, 1, 0x1000) is None


@pytest.mark.ebpf
def test_an_owner_of_several_files_that_failed_is_left_out_for_a_while_and_nobody_else(
    reader: PerfMapReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    command, part = reader.child.command, LinesJob(0, 100, 10)
    for user in (ATTACKER, OTHER):
        path = tmp_path / str(user)
        path.write_text("1000 10 true\n")
        os.chown(path, user, user)
    with (tmp_path / str(ATTACKER)).open("rb") as hostile, (tmp_path / str(OTHER)).open("rb") as other:
        reader.child.command = ["-c", "raise SystemExit(1)"]
        for _ in range(MAX_FAILURES):
            with pytest.raises(PerfMapError):
                reader.lines(hostile.fileno(), part, Owner.from_status(os.fstat(hostile.fileno())))
        reader.child.command = command
        assert reader.lines(hostile.fileno(), part, Owner.from_status(os.fstat(hostile.fileno()))) is None
        assert reader.names(hostile.fileno(), [0], [0x1000], Owner.from_status(os.fstat(hostile.fileno()))) == []
        lines = reader.lines(other.fileno(), part, Owner.from_status(os.fstat(other.fileno())))
        assert lines is not None
        assert lines.start.tolist() == [0x1000]
        monkeypatch.setattr(perfmap_reader, "FAILURES_S", 0.0)
        assert reader.lines(hostile.fileno(), part, Owner.from_status(os.fstat(hostile.fileno()))) is not None
    assert caplog.text.count(f"perf maps of user {ATTACKER} are not read") == 1


def test_where_the_child_cannot_be_confined_nobody_is_left_out(
    reader: PerfMapReader, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failed = metrics.PERF_MAPS_FAILED._value.get()
    reader.child.command = ["-c", "raise SystemExit(3)"]  # NOT_CONFINED
    maps = PerfMaps(reader, str(tmp_path))
    for pid in range(1, MAX_FAILURES + 2):
        process_with(tmp_path, pid).write_text("1000 10 one\n")
        assert named(maps, pid, 0x1000) is None
    assert metrics.PERF_MAPS_FAILED._value.get() == failed
    assert "are not read" not in caplog.text


def test_where_no_child_can_be_started_names_are_missing_until_one_can(
    reader: PerfMapReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process_with(tmp_path, 1).write_text("1000 10 one\n")
    maps = PerfMaps(reader, str(tmp_path))
    maps.get(1).refresh()
    reader.child.stop()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(tmp_path / "gone"))
        assert named(maps, 1, 0x1000) is None
    assert named(maps, 1, 0x1000) == JitName("one", "")


def test_the_longest_names_are_read_whole_many_at_a_time(reader: PerfMapReader, tmp_path: Path) -> None:
    count, text = 2 * MAX_NAMES + 1, "\x01" * (MAX_LINE - 20)
    process_with(tmp_path, 1).write_text("".join(f"{16 * i:x} 10 {text}x\n" for i in range(1, count + 1)))
    maps = PerfMaps(reader, str(tmp_path))
    maps.get(1).refresh()
    rows, names = maps.get(1).lookup(np.arange(16, 16 * count + 16, 16, dtype=np.uint64))
    assert sorted(rows.tolist()) == list(range(count))
    assert set(names) == {JitName(text + "x", "")}


@settings(max_examples=examples(3))
@given(st.binary(max_size=200), st.integers(0, 2**65), st.integers(0, 10))
def test_answers_are_what_was_asked_for_or_refused(data: bytes, head: int, count: int) -> None:
    part, wanted = LinesJob(0, 100, 5), NamesJob([0] * count, [0] * count)
    for answer in (data, (head % 2**64).to_bytes(8, "little") + data):
        with suppress(PerfMapAnswerError):
            lines = part.decode_answer(answer)
            assert lines.used <= 100
            assert len(lines.start) == len(lines.size) == len(lines.offset) <= 5
        with suppress(PerfMapAnswerError):
            assert len(wanted.decode_answer(answer)) == count


@pytest.mark.parametrize(
    "answer",
    [
        '[["\\ud800", "", 1]]', '[["a", "", -1]]', '[["a", "", 1e9]]', '[["a", ""]]', "[[1, 2, 3]]", "[{}]", "{}", "[]",
        "[" * 100_000, f'[["{"a" * 5000}", "", 1]]', f'[["a", "", {"9" * 5000}]]', "[null, null]", "\udcff",
    ],
)  # fmt: skip
def test_what_is_no_name_is_refused(answer: str) -> None:
    with pytest.raises(PerfMapAnswerError):
        NamesJob([0], [0]).decode_answer(answer.encode("utf-8", "surrogateescape"))


def test_all_names_of_a_job_fit_into_an_answer() -> None:
    assert len(encode_names([JitName("\x01" * MAX_LINE, "")] * MAX_NAMES)) < MAX_ANSWER_BYTES
