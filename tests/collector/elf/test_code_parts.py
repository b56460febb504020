"""The parts of a function that a compiler has split, also where nothing names the second one."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.elf import dynamic, file
from collector.elf.code_parts import code_parts
from collector.elf.dynamic import Dynamic, Symbol
from collector.elf.file import ElfFile
from collector.elf.reader import bytes_reader

SOURCE = """
int other(int, int) __attribute__((cold));
int split(int a, int b)
{
	for (int i = 0; i < a; i++) {
		if (__builtin_expect(b == i, 0)) b += other(a, 1) * other(b, 2);
		if (__builtin_expect(b == 7 * i, 0)) b += other(a, 3) * other(b, 4);
		a ^= b;
	}
	return a;
}
int whole(int a, int b) { return a > b ? a : b * a; }
int other(int a, int b) { return a - b; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """A stripped library, and the addresses and sizes of its functions before that."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "split.c").write_text(SOURCE)
    subprocess.run(["gcc", "-O2", "-fPIC", "-shared", "split.c", "-o", "split.so"], check=True, cwd=folder)
    listed = subprocess.run(["nm", "-S", "split.so"], check=True, cwd=folder, capture_output=True, text=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    subprocess.run(["strip", "split.so"], check=True, cwd=folder)
    return Path(folder / "split.so").read_bytes(), {r[3]: (int(r[0], 16), int(r[1], 16)) for r in rows if len(r) == 4}


def parsed(data: bytes) -> ElfFile:
    return file.parse(bytes_reader(data))


def parts(data: bytes, name: bytes) -> list[tuple[int, int]]:
    elf = parsed(data)
    symbol = Dynamic(elf, dict(dynamic.entries(elf))).find(name)
    assert symbol is not None
    return code_parts(elf, symbol)


def test_the_part_that_was_moved_away_is_found(library: tuple[bytes, dict[str, tuple[int, int]]]) -> None:
    data, named = library
    (start, size), (cold, cold_size) = named["split"], named["split.cold"]
    hot, other = parts(data, b"split")
    assert (hot, other[0]) == ((start, start + size), cold)
    assert cold + cold_size <= other[1] <= min(at for at, _ in named.values() if at > cold)
    start, size = named["whole"]
    assert parts(data, b"whole") == [(start, start + size)]


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.data())
def test_any_file_has_some_parts(
    library: tuple[bytes, dict[str, tuple[int, int]]], value: int, size: int, data: st.DataObject
) -> None:
    damaged = bytearray(library[0])
    for _ in range(8):
        at = data.draw(st.integers(64, len(damaged) - 8))
        damaged[at : at + 8] = os.urandom(8)
    elf = parsed(library[0])
    assert code_parts(elf, Symbol(1, value, size))[0][0] == value
    code_parts(ElfFile(bytes_reader(bytes(damaged)), elf.header, elf.segments), Symbol(1, *library[1]["split"]))
