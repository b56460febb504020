"""Names of compiled code from perf maps."""

import os
from pathlib import Path

import numpy as np
import pytest

from collector import perfmap
from collector.perfmap import Name, PerfMap

PID = 4321


@pytest.fixture
def map_file(tmp_path: Path) -> Path:
    process = tmp_path / str(PID)
    (process / "root" / "tmp").mkdir(parents=True)
    (process / "status").write_text("Name:\tx\nNSpid:\t4321\t7\n")
    return process / "root" / "tmp" / "perf-7.map"


def names(of: PerfMap, *addresses: int) -> list[Name | None]:
    of.refresh()
    rows, found = of.lookup(np.array(addresses, np.uint64))
    return [found[row] if row >= 0 else None for row in rows.tolist()]


def test_the_map_is_found_by_the_process_id_of_its_own_namespace(map_file: Path, tmp_path: Path) -> None:
    map_file.write_text("1000 20 first\n0x2000 0x10 second one\n")
    found = names(PerfMap(PID, str(tmp_path)), 0x1000, 0x101F, 0x1020, 0x2008, 0xFFF, 2**64 - 1)
    assert found == [Name("first", ""), Name("first", ""), None, Name("second one", ""), None, None]


def test_what_is_appended_is_read_also_when_a_line_comes_in_pieces(map_file: Path, tmp_path: Path) -> None:
    of = PerfMap(PID, str(tmp_path))
    assert names(of, 0x1000) == [None]
    map_file.write_text("1000 20 fi")
    assert names(of, 0x1000) == [None]
    with open(map_file, "a") as file:
        file.write("rst\n2000 10 second\n")
    assert names(of, 0x1000, 0x2000) == [Name("first", ""), Name("second", "")]


def test_the_last_of_equal_areas_is_right(map_file: Path, tmp_path: Path) -> None:
    map_file.write_text("1000 20 old\n1000 30 new\n")
    assert names(PerfMap(PID, str(tmp_path)), 0x1025) == [Name("new", "")]


def test_functions_of_python_have_their_file(map_file: Path, tmp_path: Path) -> None:
    map_file.write_text("1000 b py::Shop.price:/srv/shop.py\n")
    assert names(PerfMap(PID, str(tmp_path)), 0x1000) == [Name("Shop.price", "/srv/shop.py")]


def test_garbage_is_left_out(map_file: Path, tmp_path: Path) -> None:
    map_file.write_bytes(
        b"\xff\xfe\n1000\nzz 10 x\n1000 10 \n\n-1 5 y\n99999999999999999 1 z\n2000 10 \xffgood\n" + b"a" * 5000
    )
    of = PerfMap(PID, str(tmp_path))
    assert names(of, 0x1000, 0x2000) == [None, Name("\ufffdgood", "")]


def test_a_map_that_was_replaced_starts_from_nothing(map_file: Path, tmp_path: Path) -> None:
    of = PerfMap(PID, str(tmp_path))
    map_file.write_text("1000 20 first\n")
    assert names(of, 0x1000) == [Name("first", "")]
    other = map_file.with_name("other")
    other.write_text("1000 20 other\n")
    os.replace(other, map_file)
    assert names(of, 0x1000) == [Name("other", "")]


def test_links_and_pipes_are_not_followed(map_file: Path, tmp_path: Path) -> None:
    os.mkfifo(map_file)
    assert names(PerfMap(PID, str(tmp_path)), 0x1000) == [None]
    map_file.unlink()
    (tmp_path / "secret").write_text("1000 20 secret\n")
    map_file.symlink_to(tmp_path / "secret")
    assert names(PerfMap(PID, str(tmp_path)), 0x1000) == [None]


def test_a_map_is_read_up_to_a_bound(map_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfmap, "MAX_BYTES", 20)
    map_file.write_text("1000 10 a\n2000 10 b\n3000 10 c\n")
    assert names(PerfMap(PID, str(tmp_path)), 0x1000, 0x2000, 0x3000) == [Name("a", ""), Name("b", ""), None]
