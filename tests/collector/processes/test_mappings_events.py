"""Mappings as events tell them, of processes that never were."""

import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from collector.elf import identity
from collector.processes import mappings, process_table
from collector.processes.listener import ProcessListener
from collector.processes.mapped_files import FileCache
from collector.processes.mappings import MappedRange, ProcessMappings
from collector.processes.process import Process, read_process
from collector.processes.process_events import parse
from tests.collector.processes import kernel_records as kernel

PID = 2**22 + 1  # and those above: the kernel gives none of these
BASE = 0x5555_5555_4000


class Program:
    """A program on disk, and how it is mapped."""

    def __init__(self, path: Path, text: str, *options: str) -> None:
        source = f'const char *text = "{text}"; int main(void) {{ return 0; }}'
        subprocess.run(["gcc", "-x", "c", "-", "-o", path, *options], input=source.encode(), check=True)
        with open(path, "rb") as file:
            self.elf = identity.read_file(file.fileno())
        self.path, self.build_id = str(path), self.elf.build_id
        self.segment = next(segment for segment in self.elf.segments if segment.executable)

    def mapped(self, monotonic_ns: int, pid: int, start: int = BASE, size: int = 0x1000) -> bytes:
        reported = bytes.fromhex(self.build_id.removeprefix("gnu:"))
        return kernel.mapped(monotonic_ns, pid, start, size, self.segment.offset & ~0xFFF, self.path, reported)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return Program(tmp_path_factory.mktemp("programs") / "one", "one")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return Program(tmp_path_factory.mktemp("programs") / "two", "two")


class Heard(ProcessListener):
    """Mappings, and what it told its listeners."""

    def __init__(self) -> None:
        self.notified: list[tuple[Process, list[MappedRange]]] = []
        self.ends: list[int] = []
        self.mappings = ProcessMappings(FileCache(), [self])

    def mapped(self, process: Process, ranges: list[MappedRange]) -> None:
        self.notified.append((process, ranges))

    def ended(self, pid: int) -> None:
        self.ends.append(pid)

    def apply(self, *records: bytes, eager: bool = True) -> None:
        self.mappings.apply(parse([b"".join(records)]), eager)

    def paths(self, pid: int, *addresses: int, times_ns: list[int] | None = None) -> list[str]:
        times = None if times_ns is None else np.array(times_ns, np.uint64)
        found = self.mappings.locate(pid, np.array(addresses, np.uint64), times)
        return [found.files[row].file for row in found.file.tolist()]


@pytest.fixture
def heard() -> Heard:
    return Heard()


def test_a_program_is_located_by_the_addresses_of_its_file(heard: Heard, one: Program) -> None:
    heard.apply(kernel.fork(1, 1, PID), kernel.execute(2, PID), one.mapped(3, PID), kernel.exit_record(4, PID))
    found = heard.mappings.locate(PID, np.array([BASE + 0x25], np.uint64))
    assert found.files[int(found.file[0])].build_id == one.build_id
    assert int(found.address[0]) == one.segment.vaddr + 0x25
    assert heard.ends == [PID]


def test_exec_at_the_same_addresses_is_told_apart_by_time(heard: Heard, one: Program, two: Program) -> None:
    heard.apply(kernel.execute(10, PID), one.mapped(11, PID), kernel.execute(20, PID), two.mapped(21, PID))
    address = BASE + 0x25
    assert heard.paths(PID, address) == [two.path]
    assert heard.paths(PID, address, address, times_ns=[15, 25]) == [one.path, two.path]


def test_what_the_program_before_exec_had_elsewhere_is_still_located(heard: Heard, one: Program, two: Program) -> None:
    heard.apply(kernel.execute(10, PID), one.mapped(11, PID), kernel.execute(20, PID), two.mapped(21, PID, BASE << 1))
    assert heard.paths(PID, BASE, BASE << 1) == [one.path, two.path]
    [(process, ranges)] = heard.notified
    assert [mapped_range.file.file for mapped_range in ranges] == [two.path]
    assert process.program == (20, 0, 0)


@pytest.mark.parametrize("eager", [True, False])
def test_a_child_has_what_its_parent_had_when_it_was_forked(
    heard: Heard, one: Program, two: Program, eager: bool
) -> None:
    child, grandchild = PID + 1, PID + 2
    heard.apply(
        kernel.execute(10, PID),
        one.mapped(11, PID),
        kernel.fork(15, PID, child),
        kernel.fork(16, child, grandchild),
        kernel.execute(20, PID),
        two.mapped(21, PID),
        kernel.exit_record(22, child),
        eager=eager,
    )
    assert bool(heard.notified) == eager
    assert heard.paths(PID, BASE) == [two.path]
    assert heard.paths(grandchild, BASE) == [one.path]
    assert heard.paths(child, BASE) == [one.path]


def test_what_waits_is_decoded_when_somebody_asks(heard: Heard, one: Program) -> None:
    heard.apply(kernel.execute(10, PID), one.mapped(11, PID), eager=False)
    assert len(heard.mappings) == 0
    assert [mapped_range.file.file for mapped_range in heard.mappings.ranges(PID)] == [one.path]
    assert heard.mappings.notice(PID) is None  # there is no such process


def test_who_was_told_of_a_process_is_told_what_happens_to_it(heard: Heard, one: Program) -> None:
    heard.apply(kernel.execute(10, PID), one.mapped(11, PID), kernel.execute(10, PID + 1), eager=False)
    heard.mappings.notify(PID)
    heard.apply(one.mapped(12, PID, BASE << 1), one.mapped(12, PID + 1), eager=False)
    heard.apply(kernel.exit_record(13, PID), kernel.exit_record(13, PID + 1), eager=False)
    assert [(process.pid, len(ranges)) for process, ranges in heard.notified] == [(PID, 1), (PID, 2)]
    assert heard.ends == [PID]


def test_another_process_with_the_same_id_has_nothing_of_the_first(heard: Heard, one: Program, two: Program) -> None:
    heard.apply(kernel.execute(10, PID), one.mapped(11, PID), kernel.exit_record(12, PID))
    heard.apply(kernel.fork(20, PID + 5, PID), kernel.execute(21, PID), two.mapped(22, PID, BASE << 1))
    assert heard.paths(PID, BASE, BASE << 1) == ["", two.path]


def test_a_file_mapped_over_another_takes_its_place(heard: Heard, one: Program, two: Program) -> None:
    heard.apply(kernel.execute(10, PID), one.mapped(11, PID, BASE, 0x3000), two.mapped(12, PID, BASE))
    assert heard.paths(PID, BASE) == [two.path]


def test_where_a_whole_file_is_mapped_only_its_code_is_code(heard: Heard, one: Program) -> None:
    heard.apply(kernel.execute(10, PID), one.mapped(11, PID, BASE, 0x20_0000))
    assert heard.paths(PID, BASE, BASE + 0x10_0000) == [one.path, ""]


def test_copies_that_share_a_build_id_keep_their_own_addresses(heard: Heard, one: Program, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    data = bytearray(Path(one.path).read_bytes())
    header = int.from_bytes(data[32:40], "little")
    for at in range(header, header + 56 * int.from_bytes(data[56:58], "little"), 56):
        if data[at] == 1:  # loaded 16 MB higher, as if it had been linked there
            vaddr = int.from_bytes(data[at + 16 : at + 24], "little") + 0x100_0000
            data[at + 16 : at + 24] = vaddr.to_bytes(8, "little")
    moved.write_bytes(data)
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", stripped, one.path], check=True)
    build_id = bytes.fromhex(one.build_id.removeprefix("gnu:"))
    offset = one.segment.offset & ~0xFFF
    for i, path in enumerate([one.path, str(moved), str(stripped)]):
        pid = PID + i
        heard.apply(kernel.execute(10, pid), kernel.mapped(11, pid, BASE, 0x1000, offset, path, build_id))
    found = [int(heard.mappings.locate(PID + i, np.array([BASE], np.uint64)).address[0]) for i in range(3)]
    assert found == [one.segment.vaddr, one.segment.vaddr + 0x100_0000, one.segment.vaddr]
    heard.apply(kernel.execute(10, PID + 3), kernel.mapped(11, PID + 3, BASE, 0x1000, offset, "/gone", build_id))
    assert heard.mappings.ranges(PID + 3)[0].file.build_id == ""  # which copy it was, nobody can say


def test_a_file_at_the_path_that_is_another_one_by_now_is_not_taken_for_it(
    heard: Heard, one: Program, two: Program
) -> None:
    told_id = bytes.fromhex(one.build_id.removeprefix("gnu:"))
    heard.apply(kernel.execute(10, PID), kernel.mapped(11, PID, BASE, 0x1000, 0x1000, two.path, told_id))
    [mapped_range] = heard.mappings.ranges(PID)
    assert (mapped_range.file.build_id, mapped_range.file.file) == ("", two.path)


def test_memory_without_a_file_may_have_been_compiled_and_the_system_calls_page_not(heard: Heard) -> None:
    heard.apply(
        kernel.execute(10, PID),
        kernel.mapped(11, PID, 0x1000, 0x1000, 0, "//anon"),
        kernel.mapped(12, PID, 0x4000, 0x1000, 0, "/memfd:jit (deleted)", inode=5),
        kernel.mapped(13, PID, 0x8000, 0x1000, 0, "[vsyscall]"),
        kernel.mapped(14, PID, 0xC000, 0x2000, 0, "[vdso]"),
    )
    ranges = heard.mappings.ranges(PID)
    assert [mapped_range.file.file for mapped_range in ranges] == ["[anon]", "/memfd:jit", "[vsyscall]", "[vdso]"]
    assert [mapped_range.anonymous for mapped_range in ranges][0::2] == [True, False]
    assert ranges[3].file.build_id.startswith("gnu:")


def test_a_flood_of_mappings_is_left_out_and_what_others_map_meanwhile_is_not(heard: Heard, one: Program) -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        heard.mappings.notice(process.pid)
        heard.apply(kernel.execute(1, PID))
        now, count = time.monotonic_ns(), 3 * process_table.MAPPED_AT_ONCE
        flood = [kernel.mapped(now + i, process.pid, 0x2000 * i, 0x1000, 0, "//anon") for i in range(1, count)]
        heard.apply(*flood, one.mapped(now, PID), eager=False)
        assert heard.paths(PID, BASE + 0x25) == [one.path]
        known = {mapped_range.start for mapped_range in heard.mappings.ranges(process.pid)}
        assert 0x2000 * (count - 1) in known
        assert 0x2000 not in known
        heard.apply(*flood[:100], eager=False)  # there is still no room for so much
        heard.paths(process.pid, 0)
        assert 0x2000 * (count - 1) not in {each.start for each in heard.mappings.ranges(process.pid)}  # as /proc says
    finally:
        process.kill()
        process.wait()


def test_telling_what_is_known_already_changes_nothing(heard: Heard, one: Program) -> None:
    heard.apply(kernel.execute(10, PID), one.mapped(11, PID))
    heard.apply(one.mapped(12, PID))
    assert len(heard.notified) == 1


def test_of_a_process_that_nobody_knows_a_mapping_says_too_little(heard: Heard, one: Program) -> None:
    heard.apply(one.mapped(12, PID))
    assert len(heard.mappings) == 0
    assert heard.paths(PID, BASE) == [""]


def test_a_chain_of_forks_however_long_is_followed_only_so_far(heard: Heard, one: Program) -> None:
    records = [kernel.execute(1, PID), one.mapped(2, PID)]
    records += [kernel.fork(10 + i, PID + i, PID + i + 1) for i in range(3000)]
    heard.apply(*records, eager=False)
    assert heard.paths(PID + 3000, BASE) == [""]
    assert heard.paths(PID + 20, BASE) == [one.path]


def test_processes_are_bounded_and_those_that_ended_go_first(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_table, "MAX_PROCESSES", 600)
    heard.apply(kernel.execute(1, PID))
    for i in range(1, 2000):
        heard.apply(kernel.execute(10 + i, PID + i), kernel.exit_record(11 + i, PID + i))
    assert len(heard.mappings) <= 600
    assert PID not in heard.ends
    assert len(heard.ends) == 1999


def test_forgetting_a_process_ends_it(heard: Heard, one: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    heard.apply(
        kernel.execute(10, PID), one.mapped(11, PID), kernel.execute(12, PID + 1), kernel.exit_record(13, PID + 1)
    )
    monkeypatch.setattr(mappings, "_KEEP_S", -1.0)
    assert sorted(heard.mappings.expire()) == [PID, PID + 1]
    assert sorted(heard.ends) == [PID, PID + 1]


def test_after_lost_records_a_process_that_lives_is_read_again(heard: Heard) -> None:
    process = subprocess.Popen(["sleep", "100"])
    try:
        time.sleep(0.1)
        assert heard.mappings.notice(process.pid) is not None
        assert heard.mappings.notice(process.pid) is not None
        assert len(heard.notified) == 1
        heard.apply(kernel.lost(time.monotonic_ns(), 7))
        assert heard.mappings.notice(process.pid) is not None
        assert len(heard.notified) == 2
    finally:
        process.kill()
        process.wait()


def test_a_confirmed_process_is_read_again_only_after_an_event(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counting(pid: int) -> Process | None:
        read.append(pid)
        return read_process(pid)

    monkeypatch.setattr(mappings, "read_process", counting)
    heard.mappings.followed = True
    process = subprocess.Popen(["sleep", "100"])
    try:
        time.sleep(0.1)
        first = heard.mappings.notice(process.pid)
        assert first is not None
        assert heard.mappings.notice(process.pid) == first
        assert read == [process.pid]
        heard.apply(kernel.execute(time.monotonic_ns(), process.pid))
        assert heard.mappings.notice(process.pid) == first
        assert read == [process.pid] * 2
        heard.mappings.followed = False
        assert heard.mappings.notice(process.pid) == first
        assert read == [process.pid] * 3
        heard.mappings.followed = True
        heard.apply(kernel.exit_record(time.monotonic_ns(), process.pid))
        process.kill()
        process.wait()
        assert heard.mappings.notice(process.pid) is None
    finally:
        process.kill()
        process.wait()


def test_listeners_are_told_again_on_request(heard: Heard) -> None:
    process = subprocess.Popen(["sleep", "100"])
    try:
        time.sleep(0.1)
        heard.mappings.notify(process.pid)
        assert len(heard.notified) == 1
        address = heard.notified[0][1][0].start
        heard.mappings.notify(process.pid, address)
        heard.mappings.notify(process.pid)
        assert len(heard.notified) == 3
        heard.mappings.notify(process.pid, 5)
        assert len(heard.notified) == 3
    finally:
        process.kill()
        process.wait()
    heard.mappings.notify(process.pid)
    assert len(heard.notified) == 3


def test_events_and_questions_may_come_from_several_threads(heard: Heard, one: Program, two: Program) -> None:
    stop = threading.Event()

    def happen() -> None:
        for i in range(400):
            pid = PID + i % 7
            heard.apply(
                kernel.fork(10 * i, PID + (i + 1) % 7, pid),
                kernel.execute(10 * i + 1, pid),
                (one, two)[i % 2].mapped(10 * i + 2, pid),
                kernel.exit_record(10 * i + 3, pid),
                eager=bool(i % 3),
            )
        stop.set()

    thread = threading.Thread(target=happen)
    thread.start()
    while not stop.is_set():
        for pid in range(PID, PID + 7):
            assert set(heard.paths(pid, BASE)) <= {one.path, two.path, ""}
        heard.mappings.expire()
    thread.join()
    assert all(heard.paths(pid, BASE) != [""] for pid in range(PID, PID + 7))
