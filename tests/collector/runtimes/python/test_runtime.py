"""Interpreters in the files that processes map."""

import contextlib
import functools
import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.elf.reader import bytes_reader
from collector.runtimes.python.layout import LayoutError
from collector.runtimes.python.runtime import MAX_LAYOUTS, MAX_LAYOUTS_OF_USER, PythonRuntime, PythonRuntimes
from collector.runtimes.python.symbols import find_interpreter
from collector.runtimes.refusals import MAX_REASONS
from tests.collector.runtimes.python.interpreters import Interpreter, interpreters
from tests.collector.runtimes.python.test_layout import PUBLISHED_3_14, published

SOURCE = """
typedef unsigned long u64;
__attribute__((section(".PyRuntime"), used)) u64 {runtime}[200] = {{{words}}};
const u64 {version} = {number};
char PyCode_Type[8];
int main(void) {{ return 0; }}
"""
BASE = 0x7F00_0000_0000
Build = Callable[..., bytes]
PUBLISHED = 8 + 8 * len(PUBLISHED_3_14)


class MappedRange(NamedTuple):
    bias: int
    file_key: str
    entry: object = "a file"


def mapped_range(file_key: str, bias: int = 0) -> MappedRange:
    return MappedRange(bias, file_key)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Makes a file with a `_PyRuntime`, each once."""
    folder = tmp_path_factory.mktemp("built")

    @functools.cache
    def make(*flags: str, **names: str) -> bytes:
        names = {"runtime": "_PyRuntime", "version": "Py_Version", "number": "0x030b02f0", "words": "1"} | names
        source, target = folder / "python.c", folder / "python"
        source.write_text(SOURCE.format(**names))
        subprocess.run(["gcc", "-shared", "-fPIC", *flags, source, "-o", target], check=True)
        return target.read_bytes()

    return make


@pytest.mark.parametrize("python", interpreters(), ids=lambda python: python.name)
def test_the_interpreter_of_a_file_is_found_by_what_it_exports(python: Interpreter) -> None:
    opened: list[str] = []

    def open_file(build_id: str) -> int:
        opened.append(build_id)
        return os.open(python.library if build_id == "gnu:1" else "/bin/true", os.O_RDONLY)

    runtimes = PythonRuntimes(open_file)
    what = "" if python.minor == 6 else "-D"  # the first interpreter is no symbol that it exports
    listed = subprocess.run(["nm", "-S", *what.split(), python.library], capture_output=True, text=True, check=True)
    rows = [line.split() for line in listed.stdout.splitlines()]
    places = {row[-1].partition("@")[0]: [int(number, 16) for number in row[:-2]] for row in rows}
    symbol = places["interp_head" if python.minor == 6 else "_PyRuntime"][0]
    start, size = places["_PyEval_EvalFrameDefault"]
    loop = () if python.minor >= 11 else ((BASE + start, BASE + start + size),)
    ranges = [mapped_range("gnu:2", 5), mapped_range(""), mapped_range("gnu:1", 2**64 - BASE)]
    assert runtimes.find(ranges) == runtimes.find(ranges) == PythonRuntime(BASE + symbol, 0, loop)
    assert runtimes.find(ranges[:1]) is None
    assert sorted(opened) == ["gnu:1", "gnu:2"]
    assert runtimes.refusals.counted == {}


def test_a_file_that_is_gone_is_looked_for_again() -> None:
    python, places = interpreters()[0], [None, "there"]
    runtimes = PythonRuntimes(lambda _: os.open(python.library, os.O_RDONLY) if places.pop(0) else None)
    assert runtimes.find([mapped_range("gnu:1")]) is None
    assert runtimes.find([mapped_range("gnu:1")]) is not None


def test_what_is_no_file_is_not_opened() -> None:
    """The vDSO has a build ID, and every process maps it."""
    opened: list[str] = []
    runtimes = PythonRuntimes(opened.append)
    assert runtimes.find([MappedRange(0, "gnu:1", entry=None)]) is None
    assert opened == []


def test_a_stripped_executable_that_exports_nothing_is_found_by_its_section(build: Build) -> None:
    offsets = struct.unpack(f"<{1 + len(PUBLISHED_3_14)}Q", published(*PUBLISHED_3_14)[: 8 + 8 * len(PUBLISHED_3_14)])
    stripped = build("-s", "-fvisibility=hidden", words=", ".join(f"{word}ul" for word in offsets))
    found = find_interpreter(bytes_reader(stripped))
    assert found is not None
    assert (found.layout.walk.threads, found.layout.walk.code_type) == (7344, 0)
    with pytest.raises(LayoutError, match="exports nothing"):  # before 3.13 only exports tell the version
        find_interpreter(bytes_reader(build("-s", "-fvisibility=hidden")))


def test_builds_that_cannot_be_read_are_counted_by_the_reason(build: Build, tmp_path: Path) -> None:
    debug = tmp_path / "debug"
    debug.write_bytes(build(version="_Py_NegativeRefcount = 1, Py_Version"))
    old = tmp_path / "old"
    old.write_bytes(build(version="Other"))
    files = {"gnu:1": debug, "gnu:2": old}
    runtimes = PythonRuntimes(lambda build_id: os.open(files[build_id], os.O_RDONLY))
    assert runtimes.find([mapped_range("gnu:1"), mapped_range("gnu:2")]) is None
    assert [text.split(":")[0] for text in runtimes.refusals.counted] == [
        "debug builds of CPython up to 3.12 have other offsets",
        "expected Py_Version",
    ]


def test_files_that_invent_versions_do_not_make_endless_reasons() -> None:
    runtimes = PythonRuntimes(lambda build_id: None)
    for version in range(1000):
        runtimes.refusals.add(f"version {version}")
    assert len(runtimes.refusals.counted) == MAX_REASONS + 1
    assert runtimes.refusals.counted["other reasons"] == 1000 - MAX_REASONS


def test_builds_beyond_the_program_s_table_are_refused() -> None:
    python = interpreters()[0]
    runtimes = PythonRuntimes(lambda _: os.open(python.library, os.O_RDONLY))
    runtimes.layouts += [None] * MAX_LAYOUTS  # type: ignore[list-item]
    assert runtimes.find([mapped_range("gnu:1")]) is None
    assert list(runtimes.refusals.counted) == [f"more than {MAX_LAYOUTS} builds of CPython on this host"]


@given(st.data())
def test_files_that_lie_are_refused_or_read(build: Build, data: st.DataObject) -> None:
    lying = bytearray(build())
    for _ in range(data.draw(st.integers(1, 20))):
        at = data.draw(
            st.integers(0, 63) | st.integers(0, len(lying) - 9) | st.integers(len(lying) - 2000, len(lying) - 9)
        )
        lying[at : at + 8] = data.draw(st.binary(min_size=8, max_size=8))
    with contextlib.suppress(LayoutError, OSError):
        find_interpreter(bytes_reader(bytes(lying)))


@pytest.mark.parametrize("user", [4321, None], ids=["that lives", "whose processes have ended"])
def test_one_user_does_not_fill_the_program_s_table(build: Build, tmp_path: Path, user: int | None) -> None:
    path = tmp_path / "python"

    def crafted(number: int) -> int:
        """Opens a file that publishes offsets of its own."""
        offsets = list(original)
        offsets[original.index(7344)] = 8000 + 8 * number
        words = f"<{len(original)}Q"
        path.write_bytes(template.replace(struct.pack(words, *original), struct.pack(words, *offsets)))
        return os.open(path, os.O_RDONLY)

    original = struct.unpack(f"<{1 + len(PUBLISHED_3_14)}Q", published(*PUBLISHED_3_14)[:PUBLISHED])
    template = build("-s", "-fvisibility=hidden", words=", ".join(f"{word}ul" for word in original))
    runtimes = PythonRuntimes(lambda build_id: crafted(int(build_id)))
    for number in range(MAX_LAYOUTS):
        runtimes.find([mapped_range(str(number))], lambda: user)
    assert len(runtimes.layouts) == MAX_LAYOUTS_OF_USER
    assert list(runtimes.refusals.counted) == [f"more than {MAX_LAYOUTS_OF_USER} builds of CPython of one user"]
    for number in range(1000, 1020):
        assert runtimes.find([mapped_range(str(number))], lambda: 0) is not None
    assert runtimes.find([mapped_range("2000")], lambda: 1234) is not None
    assert runtimes.find([mapped_range("1000")], lambda: user) is not None
