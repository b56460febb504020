"""Functions by symbol tables: real files against what nm says, and files that lie."""

import itertools
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.elf.reader import bytes_reader, file_reader
from collector.symbols.code_ranges import SymbolRange
from collector.symbols.functions import functions
from tests.examples import examples

LIBRARY = """
#define LOOP(n) volatile int s = 0; for (int i = 0; i < x; i++) s += i * n; return s;
#define LOCAL static __attribute__((noinline, used))
LOCAL int local_first(int x) { LOOP(2) }
int exported_one(int x) { return local_first(x) + 1; }
LOCAL int local_between(int x) { LOOP(3) }
int exported_two(int x) { return local_between(x) + 1; }
LOCAL int local_last(int x) { LOOP(5) }
"""
ASSEMBLY = """
    .text
    .globl sized, unsized, after
    .type sized, @function
    .type unsized, @function
    .type after, @function
sized: nop; nop
inside: nop; ret
    .size sized, . - sized
    .skip 32, 0x90
unsized: nop; ret
    .skip 16, 0x90
    .cfi_startproc
    nop; ret             # code of a function without a symbol
    .cfi_endproc
    .balign 16
after: nop; ret
    .section .text.more, "ax"
    nop
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "lib.so"
    path.with_suffix(".c").write_text(LIBRARY)
    subprocess.run(
        ["gcc", "-O1", "-fno-toplevel-reorder", "-shared", "-fPIC", path.with_suffix(".c"), "-o", path], check=True
    )
    return path


def of(path: Path) -> list[SymbolRange]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return list(functions(file_reader(descriptor)))
    finally:
        os.close(descriptor)


def name(ranges: list[SymbolRange], address: int) -> str:
    return next((name for start, end, name in ranges if start <= address < end), "")


def symbols(path: Path) -> dict[str, tuple[int, int]]:
    """Address and size of the functions that have one, as nm says."""
    lines = [line.split() for line in subprocess.check_output(["nm", "-S", path], text=True).splitlines()]
    return {line[3]: (int(line[0], 16), int(line[1], 16)) for line in lines if len(line) == 4 and line[2] in "tT"}


def test_local_functions_of_a_stripped_library_stay_unnamed(library: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "stripped.so"
    subprocess.run(["strip", library, "-o", stripped], check=True)
    truth = symbols(library)
    whole, exported = of(library), of(stripped)
    places = sorted((start, function) for function, (start, _) in truth.items())
    assert [function for _, function in places if not function.startswith("__")] == [
        "local_first", "exported_one", "local_between", "exported_two", "local_last",
    ]  # fmt: skip
    for function, (start, size) in truth.items():
        for address in range(start, start + size):
            assert name(whole, address) == function
            assert name(exported, address) == (function if function.startswith("exported") else "")


def test_symbols_without_a_size_do_not_reach_into_the_next_section(library: Path) -> None:
    """`_init` in .init has none, and .plt follows."""
    headers = subprocess.check_output(["readelf", "-SW", library], text=True).splitlines()
    plt = next(int(line.partition("PROGBITS")[2].split()[0], 16) for line in headers if " .plt" in line)
    ranges = of(library)
    assert "_init" in {code_range.name for code_range in ranges}
    assert name(ranges, plt) == ""


def test_hand_written_assembly_ends_at_the_next_symbol_or_function(tmp_path: Path) -> None:
    (tmp_path / "a.s").write_text(ASSEMBLY)
    subprocess.run(["gcc", "-shared", "-nostdlib", tmp_path / "a.s", "-o", tmp_path / "a.so"], check=True)
    found = {code_range.name: code_range for code_range in of(tmp_path / "a.so")}
    sized, unsized, after = found["sized"], found["unsized"], found["after"]
    assert sized.end - sized.start == 4
    assert sized.end + 32 == unsized.start
    assert unsized.end == unsized.start + 18  # where the function without a symbol begins
    assert unsized.end < after.start
    assert after.end == after.start + 2 or after.end <= after.start + 16  # the end of .text


def test_of_several_names_of_a_function_the_plain_one_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(
        "int __internal_answer(void) { return 42; }\n"
        'int answer(void) __attribute__((alias("__internal_answer")));\n'
        'static int tiny(void) __attribute__((alias("__internal_answer"), used));\n'
    )
    subprocess.run(["gcc", "-shared", "-fPIC", tmp_path / "a.c", "-o", tmp_path / "a.so"], check=True)
    assert {"answer"} <= {code_range.name for code_range in of(tmp_path / "a.so")}
    assert not {"__internal_answer", "tiny"} & {code_range.name for code_range in of(tmp_path / "a.so")}


def test_parts_of_functions_that_a_compiler_put_elsewhere_have_names(tmp_path: Path) -> None:
    """As LLVM's basic block sections: a symbol with a size, and without a type."""
    assembly = ".type work, @function\nwork: nop; ret\n.size work, . - work\nwork.cold: nop; ret\n"
    (tmp_path / "a.s").write_text(assembly + ".size work.cold, . - work.cold\nlabel: nop\n")
    subprocess.run(["gcc", "-shared", "-nostdlib", tmp_path / "a.s", "-o", tmp_path / "a.so"], check=True)
    assert [(found.name, found.end - found.start) for found in of(tmp_path / "a.so")] == [("work", 2), ("work.cold", 2)]


def test_32_bit_files_have_names_too(tmp_path: Path) -> None:
    (tmp_path / "a.s").write_text(".globl main\n.type main, @function\nmain: nop; ret\n.size main, . - main\nnop\n")
    subprocess.run(["as", "--32", tmp_path / "a.s", "-o", tmp_path / "a.o"], check=True)
    subprocess.run(["ld", "-m", "elf_i386", "-e", "main", tmp_path / "a.o", "-o", tmp_path / "a"], check=True)
    [main] = of(tmp_path / "a")
    assert (main.name, main.end - main.start) == ("main", 2)


@pytest.mark.slow
@settings(max_examples=examples(3))
@given(data=st.data())
def test_files_that_lie_have_fewer_names_and_hurt_nobody(library: Path, data: st.DataObject) -> None:
    image = bytearray(library.read_bytes())
    for _ in range(data.draw(st.integers(1, 12))):
        # Headers, section headers and symbol tables are where lies matter.
        at = data.draw(
            st.one_of(st.integers(0, 64), st.integers(len(image) - 2048, len(image) - 1), st.integers(0, 2048))
        )
        image[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del image[data.draw(st.integers(0, len(image))) :]
    ranges = list(functions(bytes_reader(bytes(image))))
    assert all(before.end <= after.start for before, after in itertools.pairwise(ranges))
