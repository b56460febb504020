"""Names of compiled code from perf maps."""

import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from collector.processes import perfmap, perfmap_lines
from collector.processes.jit_name import parse_name
from collector.processes.perfmap import JitName, PerfMap, PerfMaps
from collector.processes.perfmap_reader import PerfMapReader
from collector.processes.process import start_ticks
from tests.cpu_limit import cpu_limit
from tests.open_files import open_files
from tests.waiting import PATIENCE_S

PID = 4321
OURS = f"Uid:\t1\t1\t1\t{os.geteuid()}\n"


@pytest.fixture(scope="module")
def reader() -> Iterator[PerfMapReader]:
    made = PerfMapReader()
    made.child.timeout_s = PATIENCE_S
    yield made
    made.close()


@pytest.fixture
def map_file(tmp_path: Path) -> Path:
    process = tmp_path / str(PID)
    (process / "root" / "tmp").mkdir(parents=True)
    (process / "status").write_text(f"Name:\tx\n{OURS}NSpid:\t4321\t7\n")
    return process / "root" / "tmp" / "perf-7.map"


def names(of: PerfMap, *addresses: int) -> list[JitName | None]:
    of.refresh()
    rows, distinct_names = of.lookup(np.array(addresses, np.uint64))
    return [distinct_names[row] if row >= 0 else None for row in rows.tolist()]


def test_the_map_is_found_by_the_process_id_of_its_own_namespace(
    reader: PerfMapReader, map_file: Path, tmp_path: Path
) -> None:
    map_file.write_text("1000 20 first\n0x2000 0x10 second one\n")
    actual = names(PerfMap(PID, reader, str(tmp_path)), 0x1000, 0x101F, 0x1020, 0x2008, 0xFFF, 2**64 - 1)
    assert actual == [JitName("first", ""), JitName("first", ""), None, JitName("second one", ""), None, None]


def test_what_is_appended_is_read_also_when_a_line_comes_in_pieces(
    reader: PerfMapReader, map_file: Path, tmp_path: Path
) -> None:
    of = PerfMap(PID, reader, str(tmp_path))
    assert names(of, 0x1000) == [None]
    map_file.write_text("1000 20 fi")
    assert names(of, 0x1000) == [None]
    with open(map_file, "a") as file:
        file.write("rst\n2000 10 second\n")
    assert names(of, 0x1000, 0x2000) == [JitName("first", ""), JitName("second", "")]


def test_the_last_of_equal_areas_is_right(reader: PerfMapReader, map_file: Path, tmp_path: Path) -> None:
    map_file.write_text("1000 20 old\n1000 30 new\n")
    assert names(PerfMap(PID, reader, str(tmp_path)), 0x1025) == [JitName("new", "")]


def test_functions_of_python_have_their_file(reader: PerfMapReader, map_file: Path, tmp_path: Path) -> None:
    map_file.write_text("1000 b py::Shop.price:/srv/shop.py\n")
    assert names(PerfMap(PID, reader, str(tmp_path)), 0x1000) == [JitName("Shop.price", "/srv/shop.py")]


def test_garbage_is_left_out(reader: PerfMapReader, map_file: Path, tmp_path: Path) -> None:
    map_file.write_bytes(
        b"\xff\xfe\n1000\nzz 10 x\n1000 10 \n\n-1 5 y\n99999999999999999 1 z\n2000 10 \xffgood\n" + b"a" * 5000
    )
    of = PerfMap(PID, reader, str(tmp_path))
    assert names(of, 0x1000, 0x2000) == [None, JitName("\ufffdgood", "")]


def test_a_line_without_a_name_is_read_once(reader: PerfMapReader, map_file: Path, tmp_path: Path) -> None:
    map_file.write_bytes(b"1000 10 \v\n2000 10 good\n")
    of = PerfMap(PID, reader, str(tmp_path))
    assert names(of, 0x1000) == [None]
    reader.child.stop()
    assert names(of, 0x1000) == [None]
    assert reader.child.process is None
    assert names(of, 0x1000, 0x2000) == [None, JitName("good", "")]


def test_blanks_without_end_take_linear_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfmap_lines, "MAX_LINE", 1 << 18)  # minutes, where the time is quadratic
    (tmp_path / "map").write_bytes(b"1000 10" + b" " * (1 << 18) + b"\n")
    with open(tmp_path / "map", "rb") as file, cpu_limit(10):
        assert perfmap_lines.read_names(file.fileno(), [0], [0x1000]) == [None]


def test_a_map_that_was_replaced_starts_from_nothing(reader: PerfMapReader, map_file: Path, tmp_path: Path) -> None:
    of = PerfMap(PID, reader, str(tmp_path))
    map_file.write_text("1000 20 first\n")
    assert names(of, 0x1000) == [JitName("first", "")]
    other = map_file.with_name("other")
    other.write_text("1000 20 other\n")
    os.replace(other, map_file)
    assert names(of, 0x1000) == [JitName("other", "")]


def test_links_and_pipes_are_not_followed(reader: PerfMapReader, map_file: Path, tmp_path: Path) -> None:
    os.mkfifo(map_file)
    assert names(PerfMap(PID, reader, str(tmp_path)), 0x1000) == [None]
    map_file.unlink()
    (tmp_path / "secret").write_text("1000 20 secret\n")
    map_file.symlink_to(tmp_path / "secret")
    assert names(PerfMap(PID, reader, str(tmp_path)), 0x1000) == [None]


@pytest.mark.skipif(os.geteuid() != 0, reason="the file has to be root's")
def test_a_file_of_root_is_no_map_of_another_user(reader: PerfMapReader, map_file: Path, tmp_path: Path) -> None:
    map_file.write_text("1000 20 secret\n")
    (tmp_path / str(PID) / "status").write_text("Uid:\t0\t0\t0\t1234\nNSpid:\t4321\t7\n")
    assert names(PerfMap(PID, reader, str(tmp_path)), 0x1000) == [None]
    os.chown(map_file, 1234, 1234)
    assert names(PerfMap(PID, reader, str(tmp_path)), 0x1000) == [JitName("secret", "")]


def test_a_file_of_the_kernel_which_has_no_size_is_not_read(
    reader: PerfMapReader, map_file: Path, tmp_path: Path
) -> None:
    map_file.touch()
    reader.child.stop()
    assert names(PerfMap(PID, reader, str(tmp_path)), 0x1000) == [None]
    assert reader.child.process is None


def test_a_map_is_read_up_to_a_bound(
    reader: PerfMapReader, map_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perfmap, "MAX_BYTES", 20)
    map_file.write_text("1000 10 a\n2000 10 b\n3000 10 c\n")
    assert names(PerfMap(PID, reader, str(tmp_path)), 0x1000, 0x2000, 0x3000) == [
        JitName("a", ""),
        JitName("b", ""),
        None,
    ]


def test_code_compiled_anew_over_old_code_counts_also_where_it_begins_elsewhere(
    reader: PerfMapReader, map_file: Path, tmp_path: Path
) -> None:
    of = PerfMap(PID, reader, str(tmp_path))
    map_file.write_text("1000 100 one\n1100 100 two\n")
    assert names(of, 0x1000, 0x1180) == [JitName("one", ""), JitName("two", "")]
    with open(map_file, "a") as file:
        file.write("1080 100 new\n10c0 10 newest\n")
    actual = names(of, 0x1000, 0x1080, 0x10C0, 0x10D0, 0x1180)
    assert actual == [JitName(name, "") for name in ("one", "new", "newest", "new", "two")]


def test_functions_of_javascript_have_their_file_and_line(
    reader: PerfMapReader, map_file: Path, tmp_path: Path
) -> None:
    map_file.write_text("1000 b LazyCompile:*handle /srv/app.js:10:5\n")
    assert names(PerfMap(PID, reader, str(tmp_path)), 0x1000) == [JitName("handle", "/srv/app.js", 10)]


def test_a_map_of_100_mb_is_read_in_steps_and_kept_small(reader: PerfMapReader, map_file: Path, tmp_path: Path) -> None:
    text = b"%x 3c LazyCompile:*function_number_%d /srv/" + b"module/" * 90 + b"file.js:%d:5\n"
    block = b"".join(text % (0x7F00_0000_0000 + 64 * i, i, i) for i in range(5000))
    with open(map_file, "wb") as file:
        file.writelines(block for _ in range(100 * 1024 * 1024 // len(block)))
        file.write(b"7e0000000000 10 the last one\n")
    of = PerfMap(PID, reader, str(tmp_path))
    steps = 1
    while of.refresh():
        steps += 1
    assert 40 < steps < 100
    assert len(of) == 5001
    assert names(of, 0x7E00_0000_0000, 0x7F00_0000_0040 + 3) == [
        JitName("the last one", ""),
        JitName("function_number_1", "/srv/" + "module/" * 90 + "file.js", 1),
    ]


def test_of_too_many_areas_the_latest_are_kept(
    reader: PerfMapReader, map_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perfmap, "MAX_AREAS", 100)
    monkeypatch.setattr(perfmap, "_RECENT", 10)
    of = PerfMap(PID, reader, str(tmp_path))
    for i in range(40):
        with open(map_file, "a") as file:
            file.writelines(f"{0x1000 + 16 * (10 * i + k):x} 10 area {10 * i + k}\n" for k in range(10))
        of.refresh()
    assert len(of) <= 110
    assert names(of, 0x1000, 0x1000 + 16 * 399) == [None, JitName("area 399", "")]


def test_maps_of_many_processes_are_bounded_together(
    reader: PerfMapReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perfmap, "MAX_TOTAL", 25)
    maps = PerfMaps(reader, str(tmp_path))
    for pid in (1, 2, 3):
        folder = tmp_path / str(pid) / "root" / "tmp"
        folder.mkdir(parents=True)
        (folder.parents[1] / "status").write_text(f"{OURS}NSpid:\t{pid}\n")
        (folder / f"perf-{pid}.map").write_text("".join(f"{16 * i:x} 10 {pid}\n" for i in range(1, 11)))
    kept = [maps.get(pid) for pid in (1, 2, 3)]
    for of in kept:
        of.refresh()
    maps.get(1)
    assert [len(of) for of in kept] == [10, 0, 10]
    for pid in (1, 2, 3):
        maps.forget(pid)
    assert open_files(str(tmp_path))
    maps.expire()
    assert open_files(str(tmp_path)) == []


def test_a_map_without_areas_is_opened_once(reader: PerfMapReader, map_file: Path, tmp_path: Path) -> None:
    map_file.write_text("nothing of use\n")
    maps = PerfMaps(reader, str(tmp_path))
    for _ in range(3):
        maps.get(PID).refresh()
    assert open_files(str(tmp_path)) == [str(map_file)]
    maps.get(PID).close()


def test_a_map_that_was_cut_off_or_written_over_gives_no_wrong_names(
    reader: PerfMapReader, map_file: Path, tmp_path: Path
) -> None:
    map_file.write_text("1000 10 one\n2000 10 two\n3000 10 three\n")
    of = PerfMap(PID, reader, str(tmp_path))
    of.refresh()
    map_file.write_text("9000 10 one\n2000 10 two\n4000 10 three\n")  # it was not read again
    rows, distinct_names = of.lookup(np.array([0x1000, 0x2000, 0x3000], np.uint64))
    assert rows.tolist() == [-1, 0, -1]
    assert distinct_names == [JitName("two", "")]
    map_file.write_text("1000 10 other\n")
    assert names(of, 0x1000, 0x2000) == [JitName("other", ""), None]


@pytest.mark.parametrize("again", ["9000 10 one\n2000 10 two\n", "1000 10 one\n2000 10 tWo\n", "2" * 9000 + "\n"])
def test_a_map_that_was_written_anew_in_place_is_read_anew(
    reader: PerfMapReader, map_file: Path, tmp_path: Path, again: str
) -> None:
    map_file.write_text("1000 10 one\n2000 10 two\n")
    of = PerfMap(PID, reader, str(tmp_path))
    assert names(of, 0x1000, 0x2000) == [JitName("one", ""), JitName("two", "")]
    with open(map_file, "r+") as file:  # never shorter than it was
        file.write(again + "3000 10 three\n")
    os.utime(map_file, ns=(0, time.time_ns() + 10**9))
    anew = names(PerfMap(PID, reader, str(tmp_path)), 0x1000, 0x2000, 0x3000, 0x9000)
    assert names(of, 0x1000, 0x2000, 0x3000, 0x9000) == anew
    assert anew[2] == JitName("three", "")


def test_a_large_map_that_was_written_anew_with_the_same_beginning_is_read_anew(
    reader: PerfMapReader, map_file: Path, tmp_path: Path
) -> None:
    lines = [f"{0x10000 + 16 * i:x} 10 function {i}\n" for i in range(5000)]
    map_file.write_text("".join(lines))
    of = PerfMap(PID, reader, str(tmp_path))
    assert names(of, 0x10000, 0x10000 + 16 * 2000) == [JitName("function 0", ""), JitName("function 2000", "")]
    lines.insert(1000, "90000 10 new\n")
    map_file.write_text("".join(lines))
    os.utime(map_file, ns=(0, time.time_ns() + 10**9))
    assert names(of, 0x90000, 0x10000 + 16 * 2000) == [JitName("new", ""), JitName("function 2000", "")]


def began(process: Path, monotonic_ns: int) -> None:
    """In /proc/PID/stat."""
    ticks = start_ticks(monotonic_ns)
    (process / "stat").write_text(f"{PID} (a ) b) S {' '.join(['0'] * 18)} {ticks} 0\n")


@pytest.mark.parametrize("executed", [False, True])
def test_what_an_earlier_process_left_names_nothing(
    reader: PerfMapReader, map_file: Path, tmp_path: Path, executed: bool
) -> None:
    now, now_monotonic_ns = time.time_ns(), time.monotonic_ns()
    began(tmp_path / str(PID), now_monotonic_ns - (20 if executed else 5) * 10**9)
    map_file.write_text("1000 10 earlier\n2000 10 other\n")
    os.utime(map_file, ns=(0, now - 6 * 10**9))
    of = PerfMap(PID, reader, str(tmp_path), now_monotonic_ns - 5 * 10**9 if executed else 0)
    assert names(of, 0x1000) == [None]
    with open(map_file, "a") as file:
        file.write("1008 10 ours\n")
    assert names(of, 0x1000, 0x1008, 0x2000) == [None, JitName("ours", ""), None]
    with open(map_file, "r+") as file:
        file.write("3000 10 written anew and longer than what was there before\n" * 2)
    os.utime(map_file, ns=(0, now + 10**9))
    assert names(of, 0x3000, 0x2000) == [JitName("written anew and longer than what was there before", ""), None]


def test_what_was_written_since_the_process_began_counts(reader: PerfMapReader, map_file: Path, tmp_path: Path) -> None:
    began(tmp_path / str(PID), time.monotonic_ns())
    map_file.write_text("1000 10 ours\n")
    assert names(PerfMap(PID, reader, str(tmp_path), time.monotonic_ns()), 0x1000) == [JitName("ours", "")]


def test_names_remain_when_the_process_and_its_map_are_gone(
    reader: PerfMapReader, map_file: Path, tmp_path: Path
) -> None:
    map_file.write_text("1000 10 one\n2000 10 tw")
    of = PerfMap(PID, reader, str(tmp_path))
    of.refresh()
    with open(map_file, "a") as file:
        file.write("o\n")
    map_file.unlink()
    (tmp_path / str(PID) / "status").unlink()
    assert names(of, 0x1000, 0x2000) == [JitName("one", ""), JitName("two", "")]


line = st.one_of(
    st.binary(max_size=40),
    st.tuples(st.integers(0, 2**66), st.integers(0, 2**40), st.text(max_size=10)).map(
        lambda parts: f"{parts[0]:x} {parts[1]:X}\t{parts[2]}".encode()
    ),
)


@given(st.lists(line, max_size=20), st.integers(1, 4))
@example([b"0\t1 py::"], 1)
def test_any_bytes_are_read_without_harm_and_lines_as_a_plain_reader_reads_them(
    reader: PerfMapReader, lines: list[bytes], size: int
) -> None:
    data = b"".join(some + b"\n" for some in lines)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(perfmap, "STEP_LINES", size)
        path = Path(folder) / "1" / "root" / "tmp"
        path.mkdir(parents=True)
        (path.parents[1] / "status").write_text(f"{OURS}NSpid:\t1\n")
        (path / "perf-1.map").write_bytes(data)
        of = PerfMap(1, reader, folder)
        for _ in range(30):
            of.refresh()
        of.lookup(np.array([0, 1, 2**63, 2**64 - 1], np.uint64))
        expected = {}
        for start, end, name in plainly(data):
            expected = {at: known for at, known in expected.items() if not start <= at < end} | {start: name}
        starts = sorted(expected)
        rows, distinct_names = of.lookup(np.array(starts, np.uint64))
        of.close()
    assert [distinct_names[row] if row >= 0 else None for row in rows.tolist()] == [
        parse_name(expected[at]) for at in starts
    ]


def plainly(data: bytes) -> list[tuple[int, int, str]]:
    """Start, end and name of the areas."""
    entries = []
    for text in data.split(b"\n"):
        match = re.fullmatch(
            rb"(?:0x)?([0-9a-fA-F]{1,16})[ \t]{1,8}(?:0x)?([0-9a-fA-F]{1,16})[ \t]{1,8}([^ \t].*)", text, re.DOTALL
        )
        if match and 0 < int(match[2], 16) < 2**32 and int(match[1], 16) < 2**64 - 2**32 and match[3].strip():
            start = int(match[1], 16)
            entries.append((start, start + int(match[2], 16), match[3].rstrip().decode("utf-8", "replace")))
    return entries
