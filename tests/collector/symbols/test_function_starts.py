"""Functions without a symbol are known by where they begin: stripped files against the symbol tables of whole ones."""

import itertools
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.elf.reader import bytes_reader
from collector.elf.sections import find, read_sections
from collector.symbols.code_ranges import Range
from collector.symbols.function_starts import with_starts
from collector.symbols.functions import functions
from icestream.unnamed import in_file, is_unnamed, unnamed
from tests.collector.symbols.test_functions import LIBRARY, symbols


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "lib.so"
    path.with_suffix(".c").write_text(LIBRARY + "\nextern int puts(const char *);\nint calls(void) { return puts(0); }")
    command = ["gcc", "-O1", "-fno-toplevel-reorder", "-shared", "-fPIC", path.with_suffix(".c"), "-o", path]
    subprocess.run(command, check=True)
    return path


@pytest.fixture(scope="module")
def stripped(library: Path) -> Path:
    path = library.with_name("stripped.so")
    subprocess.run(["strip", library, "-o", path], check=True)
    return path


def of(path: Path) -> list[Range]:
    source = bytes_reader(path.read_bytes())
    return with_starts(functions(source), source)


def name(ranges: list[Range], address: int) -> str:
    return next((name for start, end, name in ranges if start <= address < end), "")


def test_every_address_of_a_local_function_has_the_name_of_its_start(library: Path, stripped: Path) -> None:
    ranges = of(stripped)
    ours = {function: place for function, place in symbols(library).items() if function.startswith(("local", "export"))}
    assert len(ours) == 5
    for function, (start, size) in ours.items():
        expected = function if function.startswith("exported") else f"+{start:#x}"
        assert {name(ranges, address) for address in range(start, start + size)} == {expected}


def test_a_linkage_table_is_one_function(stripped: Path) -> None:
    plt = find(read_sections(bytes_reader(stripped.read_bytes())), ".plt")
    assert plt is not None
    assert {name(of(stripped), address) for address in range(plt.address, plt.end)} == {f"+{plt.address:#x}"}


def test_names_of_a_whole_file_stay(library: Path) -> None:
    source = bytes_reader(library.read_bytes())
    for start, end, function in functions(source):
        assert {name(of(library), address) for address in (start, end - 1)} == {function}


def test_debians_stripped_bzip2_has_tens_of_functions_and_most_of_its_code_in_them() -> None:
    path = next(Path("/").glob("*/x86_64-linux-gnu/libbz2.so.1.0.?"), None)
    if path is None:
        pytest.skip("there is no libbz2")
    ranges = of(path)
    text = find(read_sections(bytes_reader(path.read_bytes())), ".text")
    assert text is not None
    inside = [each for each in ranges if text.address <= each.start < text.end]
    assert 20 < len({each.name for each in inside}) < 500
    assert sum(each.end - each.start for each in inside) > 0.9 * text.size
    assert any(each.name == "BZ2_bzCompress" for each in inside)


def test_starts_become_names_of_the_file_that_is_mapped() -> None:
    assert in_file("+0x4a00", "/usr/lib/libbz2.so.1.0.4") == unnamed("/lib/libbz2.so.1.0.4", 0x4A00)
    assert in_file("operator+", "/lib/x.so") == "operator+"
    assert is_unnamed("libbz2.so.1.0.4+0x4a00", "/lib/libbz2.so.1.0.4")
    assert not is_unnamed("libbz2.so.1.0.4+0x4a00 and more", "/lib/libbz2.so.1.0.4")
    assert not is_unnamed("main", "/lib/libbz2.so.1.0.4")


@given(data=st.data())
def test_files_that_lie_hurt_nobody(stripped: Path, data: st.DataObject) -> None:
    image = bytearray(stripped.read_bytes())
    section = find(read_sections(bytes_reader(bytes(image))), ".eh_frame")
    assert section is not None
    for _ in range(data.draw(st.integers(1, 12))):
        at = data.draw(st.integers(section.offset, section.offset + section.size - 1))
        image[at] = data.draw(st.integers(0, 255))
    source = bytes_reader(bytes(image))
    ranges = with_starts(functions(source), source)
    assert all(before.end <= after.start for before, after in itertools.pairwise(ranges))
    assert all(0 <= start < end < 2**64 for start, end, _ in ranges)
