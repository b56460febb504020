"""Stripped Go programs that the C linker made, as it makes those with C code: Go's code begins somewhere in .text, and
position-independent programs may have addresses in their relocations only."""

import struct
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.elf.reader import bytes_reader
from collector.elf.sections import Section, find, read_sections
from collector.symbols.file_names import best, make
from collector.symbols.functions import functions
from collector.symbols.go.lines import go_symcache
from collector.symbols.name_kinds import LINE_TABLE
from icestream.process.byte_cache import ByteCache
from icestream.symbols.symcache import Symbols
from tests.collector.symbols.go.test_go_lines import MODULE_TEXT, built, check_calls, readable, written
from tests.examples import examples
from tests.go import needs_go

pytestmark = [needs_go, pytest.mark.slow]

RELATIVE = 8  # R_X86_64_RELATIVE
BASE = 0x400000
"""Where a program begins that is not position-independent."""

both = pytest.mark.parametrize("program", ["whole", pytest.param("pie", marks=pytest.mark.soak)])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("go"))


@pytest.fixture(scope="module")
def whole(source: Path) -> Path:
    return built(source, "whole", "-ldflags=-linkmode=external -w", cgo=True)


@pytest.fixture(scope="module")
def pie(source: Path) -> Path:
    return built(source, "pie", "-ldflags=-linkmode=external -w", "-buildmode=pie", cgo=True)


def stripped(program: Path) -> Path:
    path = program.with_name(f"{program.name}-stripped")
    subprocess.run(["strip", program, "-o", path], check=True)
    return path


@pytest.fixture(scope="module")
def image(whole: Path) -> bytes:
    return stripped(whole).read_bytes()


def section(image: bytes, name: str) -> Section:
    found = find(read_sections(bytes_reader(image)), name)
    assert found is not None
    return found


def header_at(image: bytes, name: str) -> int:
    """Where in the file the header of a section is."""
    names = [each.name for each in read_sections(bytes_reader(image))]
    return int.from_bytes(image[40:48], "little") + 64 * names.index(name)


def replaced(image: bytes, at: int, new: bytes) -> bytes:
    return image[:at] + new + image[at + len(new) :]


@both
def test_calls_are_those_that_the_program_prints(program: str, request: pytest.FixtureRequest) -> None:
    check_calls(stripped(request.getfixturevalue(program)))


@both
def test_functions_of_go_have_names_and_those_of_c_the_address_that_they_begin_at(
    program: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    whole = request.getfixturevalue(program)
    with stripped(whole).open("rb") as file:
        made = make(file.fileno(), best(file.fileno()))
    assert made.version == LINE_TABLE
    (tmp_path / "symbols").write_bytes(made.symcache)
    symbols = Symbols(tmp_path / "symbols", made.version, made.load_address, ByteCache(1000, lambda place, line: 1))
    begin = section(whole.read_bytes(), ".text").address
    compared: Counter[str] = Counter()
    for start, end, name in functions(bytes_reader(whole.read_bytes())):
        prefix = next((prefix for prefix in ("main.", "os.", "runtime.ma", "x_cgo_") if name.startswith(prefix)), None)
        if prefix is None:
            continue
        expected = f"shop+{start:#x}" if prefix == "x_cgo_" else name.removesuffix(".abi0")
        for address in (start, (start + end) // 2):
            assert symbols.lookup(address, "/bin/shop")[-1].function.removesuffix(".abi0") == expected
        assert start > begin or prefix == "x_cgo_"
        compared[prefix] += 1
    assert compared["main."] >= 5
    assert min(compared[prefix] for prefix in ("os.", "runtime.ma", "x_cgo_")) > 5


def with_relocations(image: bytes) -> bytes:
    """The program with zeros for runtime.moduledata, and relocations that fill it: at the end of the file."""
    module = section(image, ".go.module")
    words = struct.unpack_from(f"<{module.size // 8}Q", image, module.offset)
    rows = (struct.pack("<3Q", module.address + 8 * i, RELATIVE, word) for i, word in enumerate(words))
    moved = replaced(image, header_at(image, ".rela.dyn") + 24, struct.pack("<QQ", len(image), 24 * len(words)))
    return replaced(moved, module.offset, bytes(8 * len(words))) + b"".join(rows)


def without_section(image: bytes) -> bytes:
    """The program with the table in a section of another name, which begins before it: as the C linker leaves it of
    position-independent programs of Go up to 1.25."""
    table, strings = section(image, ".gopclntab"), section(image, ".shstrtab")
    text = image[strings.offset : strings.offset + strings.size]
    moved = replaced(image, header_at(image, ".shstrtab") + 24, struct.pack("<QQ", len(image), len(text) + 13))
    at = header_at(image, ".gopclntab")
    around = struct.pack("<QQQ", table.address - 64, table.offset - 64, table.size + 64)
    return replaced(replaced(moved, at, struct.pack("<I", len(text))), at + 16, around) + text + b".data.rel.ro\0"


def names(image: bytes) -> bytes:
    return go_symcache(bytes_reader(image), BASE)


def test_names_are_the_same_if_only_relocations_have_the_addresses(image: bytes) -> None:
    relocated = with_relocations(image)
    module = section(relocated, ".go.module")
    assert not any(relocated[module.offset : module.offset + module.size // 8 * 8])
    assert names(relocated) == names(image) != b""


def test_names_are_the_same_if_the_table_has_no_section(image: bytes) -> None:
    moved = without_section(with_relocations(image))
    assert find(read_sections(bytes_reader(moved)), ".gopclntab") is None
    assert names(moved) == names(image) != b""


def test_a_module_that_does_not_fit_names_nothing(image: bytes) -> None:
    module, relocated = section(image, ".go.module"), with_relocations(image)
    at, text, code = module.offset, MODULE_TEXT, section(image, ".text")
    (begin,) = struct.unpack_from("<Q", image, at + text)
    assert code.address < begin < code.end
    relocations = header_at(relocated, ".rela.dyn")
    for damaged in (
        replaced(image, at, bytes(8)),
        replaced(image, at + 8, struct.pack("<Q", 2**64 - 1)),
        replaced(image, at + text, struct.pack("<Q", begin + 16)),
        replaced(image, at + text - 16, struct.pack("<3Q", code.end, code.end, code.end)),
        replaced(image, header_at(image, ".go.module") + 32, struct.pack("<Q", 2**64 - 1)),
        replaced(image, header_at(image, ".gopclntab") + 16, struct.pack("<Q", 2**64 - 1)),
        replaced(relocated, relocations + 24, struct.pack("<Q", 2**64 - 1)),
        replaced(relocated, relocations + 32, struct.pack("<Q", 24 * 23 - 1)),
        replaced(relocated, relocations + 32, struct.pack("<Q", 2**64 - 1)),
        replaced(relocated, header_at(relocated, ".go.module") + 16, struct.pack("<Q", 2**64 - 8)),
    ):
        assert names(damaged) == b""


@settings(max_examples=examples(0.1))
@given(data=st.data())
def test_modules_and_relocations_that_lie_hurt_nobody(image: bytes, data: st.DataObject) -> None:
    damaged = bytearray(without_section(with_relocations(image)))
    module, sections = section(image, ".go.module"), int.from_bytes(image[40:48], "little")
    areas = [(sections, len(image)), (module.offset, module.offset + 330), (len(image), len(image) + 24 * 41)]
    for _ in range(data.draw(st.integers(1, 10))):
        low, high = data.draw(st.sampled_from(areas))
        damaged[data.draw(st.integers(low, high - 1))] = data.draw(st.integers(0, 255))
    assert readable(names(bytes(damaged)))
