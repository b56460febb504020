"""Functions without a symbol are known by where they begin: stripped files against the symbol tables of whole ones."""

import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.elf import headers
from collector.elf.reader import Read, bytes_reader
from collector.elf.sections import find, read_sections
from collector.symbols.code_ranges import SymbolRange, breakpad
from collector.symbols.file_names import best, from_text, make
from collector.symbols.function_starts import unnamed_functions
from collector.symbols.functions import functions
from collector.symbols.name_kinds import DYNAMIC
from collector.symbols.names_jobs import BuiltSymCache
from icestream.process.byte_cache import ByteCache
from icestream.symbols.symcache import Symbols
from icestream.symbols.unnamed import in_file, is_unnamed, unnamed
from icestream.symbols.unnamed_functions import UnnamedFunctions
from tests.collector.symbols.test_functions import LIBRARY, symbols

NO_NAMES = (np.empty(0, np.uint64), np.empty(0, np.uint64))
LARGE = """
    .text
    .globl first
    .type first, @function
first: ret
    .size first, . - first
    .balign 16
all: .rept 6000
    .balign 16
    nop; ret
    .endr
    .section .eh_frame, "a", @progbits
common: .long common_end - . - 4, 0
    .byte 1
    .asciz "zR"
    .byte 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1
    .balign 4
common_end:
    .set number, 0
    .rept 6000
    .long 3016
    .long . - common
    .long all + 16 * number - .
    .long 2
    .byte 0
    .fill 1501, 2, 0x0b0a   # DW_CFA_remember_state, DW_CFA_restore_state
    .byte 0
    .set number, number + 1
    .endr
    .section .note.GNU-stack, "", @progbits
"""


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


@pytest.fixture
def names(tmp_path: Path) -> Callable[[Path, list[int]], list[str]]:
    """The names that the symbol file of a library has for addresses; "" for none."""

    def names(path: Path, addresses: list[int]) -> list[str]:
        with path.open("rb") as file:
            made = make(file.fileno(), best(file.fileno()))
        return names_in(made, addresses, path, tmp_path / "symbols")

    return names


Names = Callable[[Path, list[int]], list[str]]


def names_in(made: BuiltSymCache, addresses: list[int], path: Path, stored: Path) -> list[str]:
    stored.write_bytes(made.symcache)
    opened = Symbols(stored, made.version, made.load_address, ByteCache(1000, lambda place, line: 1))
    found = [opened.lookup(address, f"/usr/lib/{path.name}") for address in addresses]
    return [lines[0].function if lines else "" for lines in found]


def of(image: bytes) -> list[tuple[int, int]]:
    """Where the functions without a name begin, and their lengths."""
    return pairs(unnamed_by(bytes_reader(image)))


def unnamed_by(source: Read) -> UnnamedFunctions:
    named = functions(source)
    return unnamed_functions((named.start, named.end), source, 0)


def pairs(found: UnnamedFunctions) -> list[tuple[int, int]]:
    return list(zip(found.start.tolist(), found.length.tolist(), strict=True))


def local_functions(library: Path) -> list[tuple[int, int]]:
    return sorted(place for function, place in symbols(library).items() if function.startswith("local"))


def test_every_address_of_a_local_function_has_the_name_of_its_start(
    library: Path, stripped: Path, names: Names
) -> None:
    ours = {function: place for function, place in symbols(library).items() if function.startswith(("local", "export"))}
    assert len(ours) == 5
    for function, (start, size) in ours.items():
        expected = function if function.startswith("exported") else f"stripped.so+{start:#x}"
        assert set(names(stripped, [*range(start, start + size)])) == {expected}


def of_all(path: Path) -> list[tuple[int, int]]:
    source = bytes_reader(path.read_bytes())
    return pairs(unnamed_functions(NO_NAMES, source, 0))


def test_a_linkage_table_is_one_function(stripped: Path, names: Names) -> None:
    plt = find(read_sections(bytes_reader(stripped.read_bytes())), ".plt")
    assert plt is not None
    assert set(names(stripped, [*range(plt.address, plt.end)])) == {f"stripped.so+{plt.address:#x}"}


def test_names_of_a_whole_file_stay(library: Path, names: Names) -> None:
    for start, end, function in functions(bytes_reader(library.read_bytes())):
        assert set(names(library, [start, end - 1])) == {function}


def test_functions_with_names_are_not_in_the_table(library: Path, stripped: Path) -> None:
    local = local_functions(library)
    assert not set(local) & set(of(library.read_bytes()))
    assert set(local) <= set(of(stripped.read_bytes()))
    exported = {place for function, place in symbols(library).items() if function.startswith("exported")}
    assert not exported & set(of(stripped.read_bytes()))
    assert exported <= set(of_all(stripped))


def test_debians_stripped_bzip2_has_tens_of_functions_and_most_of_its_code_in_them() -> None:
    path = next(Path("/").glob("*/x86_64-linux-gnu/libbz2.so.1.0.?"), None)
    if path is None:
        pytest.skip("there is no libbz2")
    source = bytes_reader(path.read_bytes())
    text = find(read_sections(source), ".text")
    assert text is not None
    named = [each for each in functions(source) if text.address <= each.start < text.end]
    inside = [(start, length) for start, length in pairs(unnamed_by(source)) if text.address <= start < text.end]
    assert 20 < len(named) + len(inside) < 500
    assert sum(each.end - each.start for each in named) + sum(length for _, length in inside) > 0.9 * text.size
    assert any(each.name == "BZ2_bzCompress" for each in named)


def test_starts_become_names_of_the_file_that_is_mapped() -> None:
    assert in_file("+0x4a00", "/usr/lib/libbz2.so.1.0.4") == unnamed("/lib/libbz2.so.1.0.4", 0x4A00)
    assert in_file("operator+", "/lib/x.so") == "operator+"
    assert is_unnamed("libbz2.so.1.0.4+0x4a00", "/lib/libbz2.so.1.0.4")
    assert not is_unnamed("libbz2.so.1.0.4+0x4a00 and more", "/lib/libbz2.so.1.0.4")
    assert not is_unnamed("main", "/lib/libbz2.so.1.0.4")


def test_a_symbol_file_without_a_table_may_have_a_name_for_each_start(tmp_path: Path) -> None:
    """As those that were stored before there were tables."""
    ranges = [SymbolRange(0x10, 0x20, "main"), SymbolRange(0x20, 0x30, "+0x20")]
    made = from_text(breakpad(ranges), DYNAMIC)
    found = names_in(made, [0x10, 0x2F, 0x30], Path("lib.so.1"), tmp_path / "symbols")
    assert found == ["main", "lib.so.1+0x20", ""]


def test_a_library_with_megabytes_of_call_frame_information_has_names_for_all_functions_in_a_few_bytes_each(
    tmp_path: Path, names: Names
) -> None:
    path = tmp_path / "large.so"
    (tmp_path / "large.s").write_text(LARGE)
    subprocess.run(["gcc", "-shared", "-nostdlib", tmp_path / "large.s", "-o", path], check=True)
    all_at = next(
        int(line.split()[0], 16)
        for line in subprocess.check_output(["nm", path], text=True).splitlines()
        if line.endswith(" all")
    )
    subprocess.run(["strip", path], check=True)
    frames = find(read_sections(bytes_reader(path.read_bytes())), ".eh_frame")
    assert frames is not None
    assert frames.size > 16 << 20
    starts = range(all_at, all_at + 6000 * 16, 16)
    assert names(path, [start + 1 for start in starts]) == [f"large.so+{start:#x}" for start in starts]
    assert set(names(path, [start + 2 for start in starts])) == {""}
    assert names(path, [all_at - 16]) == ["first"]
    with path.open("rb") as file:
        assert len(make(file.fileno(), best(file.fileno())).symcache) < 6000 * 8 + 500


def header_at(image: bytes) -> tuple[int, int]:
    """Where .eh_frame_hdr is in the file, and how many functions it lists."""
    section = find(read_sections(bytes_reader(image)), ".eh_frame_hdr")
    assert section is not None
    return section.offset, struct.unpack_from("<I", image, section.offset + 8)[0]


def without_sections(image: bytes) -> bytes:
    """The file as sstrip leaves it."""
    changed = bytearray(image)
    struct.pack_into("<Q", changed, 0x28, 0)
    struct.pack_into("<3H", changed, 0x3A, 0, 0, 0)
    return bytes(changed)


def unsorted(image: bytearray, at: int, count: int) -> None:
    rows = image[at + 12 : at + 12 + 8 * count]
    image[at + 12 : at + 12 + 8 * count] = b"".join(rows[8 * row : 8 * row + 8] for row in reversed(range(count)))


def too_many(image: bytearray, at: int, count: int) -> None:
    struct.pack_into("<I", image, at + 8, count + 1)


def beyond_any_file(image: bytearray, at: int, count: int) -> None:
    struct.pack_into("<I", image, at + 8, 2**32 - 1)


def nothing_listed(image: bytearray, at: int, count: int) -> None:
    struct.pack_into("<I", image, at + 8, 0)


def out_of_bounds(image: bytearray, at: int, count: int) -> None:
    for row in range(count):
        struct.pack_into("<i", image, at + 12 + 8 * row + 4, (-1) ** row * (2**31 - 1 - row))


def other_encodings(image: bytearray, at: int, count: int) -> None:
    image[at + 3] = 0x3C  # DW_EH_PE_datarel | DW_EH_PE_sdata8


def other_version(image: bytearray, at: int, count: int) -> None:
    image[at] = 2


def no_count(image: bytearray, at: int, count: int) -> None:
    image[at + 2] = 0xFF  # DW_EH_PE_omit


def cut_off(image: bytearray, at: int, count: int) -> None:
    """The program header says that it ends in the middle of the table."""
    offset, number = struct.unpack_from("<Q", image, 0x20)[0], struct.unpack_from("<H", image, 0x38)[0]
    for row in range(offset, offset + 56 * number, 56):
        if struct.unpack_from("<I", image, row)[0] == headers.GNU_EH_FRAME:
            struct.pack_into("<Q", image, row + 32, 12 + 8 * count - 4)


DAMAGES = [
    unsorted, too_many, beyond_any_file, nothing_listed, out_of_bounds,
    other_encodings, other_version, no_count, cut_off,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_where_the_search_table_is_damaged_the_records_are_read_one_after_the_other(
    stripped: Path, damage: Callable[[bytearray, int, int], None]
) -> None:
    image = stripped.read_bytes()
    changed = bytearray(image)
    damage(changed, *header_at(image))
    assert changed != image
    assert of(bytes(changed)) == of(image)
    assert of(without_sections(bytes(changed))) == []


def test_a_file_without_section_headers_has_the_same_functions(
    stripped: Path, library: Path, tmp_path: Path, names: Names
) -> None:
    image = without_sections(stripped.read_bytes())
    (tmp_path / "lib.so.1").write_bytes(image)
    for start, length in local_functions(library):
        assert set(names(tmp_path / "lib.so.1", [*range(start, start + length)])) == {f"lib.so.1+{start:#x}"}
    assert read_sections(bytes_reader(image)) == []
    assert of(image) == of_all(stripped)
    assert set(local_functions(library)) <= set(of(image))


def test_a_file_that_ends_in_its_search_table_hurts_nobody(stripped: Path) -> None:
    image = stripped.read_bytes()
    at, count = header_at(image)
    for end in (at, at + 6, at + 12, at + 12 + 8 * count - 1):
        assert of(image[:end]) == []


def test_a_separate_debug_file_has_no_call_frame_information(library: Path, tmp_path: Path) -> None:
    debug = tmp_path / "lib.so.debug"
    subprocess.run(["objcopy", "--only-keep-debug", library, debug], check=True)
    assert of_all(debug) == []


def test_functions_that_a_symcache_cannot_reach_are_left_out(stripped: Path) -> None:
    source = bytes_reader(stripped.read_bytes())
    every = pairs(unnamed_functions(NO_NAMES, source, 0))
    base = every[1][0]
    assert pairs(unnamed_functions(NO_NAMES, source, base)) == [(start - base, length) for start, length in every[1:]]
    assert pairs(unnamed_functions(NO_NAMES, source, 2**64 - 1)) == []


@given(data=st.data(), name=st.sampled_from([".eh_frame", ".eh_frame_hdr"]), whole=st.booleans())
def test_files_that_lie_hurt_nobody(stripped: Path, data: st.DataObject, name: str, whole: bool) -> None:
    image = bytearray(stripped.read_bytes())
    section = find(read_sections(bytes_reader(bytes(image))), name)
    assert section is not None
    for _ in range(data.draw(st.integers(1, 12))):
        at = data.draw(st.integers(section.offset, section.offset + section.size - 1))
        image[at] = data.draw(st.integers(0, 255))
    source = bytes_reader(bytes(image) if whole else without_sections(bytes(image)))
    found = unnamed_by(source)
    start, length = found.start.astype(np.int64), found.length.astype(np.int64)
    assert (length > 0).all()
    assert (start[:-1] + length[:-1] <= start[1:]).all()
