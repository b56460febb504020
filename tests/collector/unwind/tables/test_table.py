"""Unwinding tables of real files: they say what readelf says, and files that lie harm nobody."""

import contextlib
import os
import random
import shutil
import struct
import subprocess
import sysconfig
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.elf import gopclntab
from collector.elf.error import ElfError, ElfTooLarge
from collector.elf.reader import bytes_reader
from collector.elf.sections import read_sections
from collector.processes.mapped_files import vdso_bytes
from collector.symbols.go.functions import read_functions
from collector.unwind.cfi.code_file import CHUNK_BYTES
from collector.unwind.cfi.steps import (
    CFA_END,
    CFA_MORESTACK,
    CFA_OTHER_STACK,
    CFA_PLT,
    CFA_RSP,
    CFA_SIGNAL,
    CFA_SYSTEMSTACK,
    CFA_UNKNOWN,
    UnwindSteps,
    pack,
)
from collector.unwind.tables import table as unwind_table
from collector.unwind.tables.table import UnwindTable
from tests.collector.unwind import readelf_frames
from tests.collector.unwind.programs import GREENLET_BEGINS, HERE

pytestmark = pytest.mark.slow

SOURCE = """
#include <alloca.h>
#include <stdio.h>
#include <string.h>
typedef double wide __attribute__((vector_size(64)));
void use(void *p);
__attribute__((noinline)) void use(void *p) { printf("%p", p); }
__attribute__((noinline)) int aligned(int n) { wide w[4]; memset(w, n, sizeof w); use(w); return n; }
__attribute__((noinline)) int both(int n) { wide w; char *p = alloca(n); memset(p, n, n); use(&w); use(p); return *p; }
__attribute__((noinline)) int cases(int n) {
    if (n > 5) { char big[5000]; use(big); return n; }
    switch (n) { case 1: use("a"); return 2; case 2: return cases(n + 1) + 1; case 3: use(&n); break; }
    return aligned(n) + both(n);
}
int main(int argc, char **argv) { return cases(argc); }
"""
SIGNALS = r"""
__asm__(".globl restorer\nrestorer: mov $15, %rax; syscall\n.globl _start\n_start: xor %ebp, %ebp; call begin; hlt");
void begin(void) { for (;;) ; }
"""
LIBC = Path("/lib/x86_64-linux-gnu/libc.so.6")
LIBPYTHON = Path(sysconfig.get_config_var("LIBDIR") or "/") / (sysconfig.get_config_var("INSTSONAME") or "none")

needs_readelf = pytest.mark.skipif(not shutil.which("readelf"), reason="binutils is not installed")


def compiled(folder: Path, *command: str, source: str = SOURCE, name: str = "program") -> Path:
    path = folder / name
    subprocess.run([*command, "-x", "c", "-", "-o", path], input=source.encode(), check=True)
    return path


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("unwind"), "gcc", "-O2", "-g")


@pytest.fixture(scope="module")
def go_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("go")
    (folder / "main.go").write_text('package main\n\nfunc main() { println("here") }\n')
    subprocess.run(
        ["go", "build", "-o", "program", "main.go"], cwd=folder, check=True, env=os.environ | {"GOFLAGS": ""}
    )
    return folder / "program"


def built(path: Path) -> UnwindTable:
    with open(path, "rb") as file:
        return consistent(unwind_table.build(file.fileno()))


def consistent(table: UnwindTable) -> UnwindTable:
    """The table, once it is what it promises to be."""
    starts = table.chunk_start.astype(np.int64)
    assert table.base % CHUNK_BYTES == 0
    assert (starts[0], starts[-1]) == (0, len(table.rows))
    assert (np.diff(starts) >= 0).all()
    first = np.unique(starts[:-1][np.diff(starts) > 0])
    assert not (table.rows[first] >> 16).any()
    rising = np.diff((table.rows >> 16).astype(np.int64)) > 0
    rising[first[1:] - 1] = True
    assert rising.all()
    assert table.rules[0].tobytes() == bytes(8)
    assert 1 <= len(table.rules) <= unwind_table.MAX_RULES
    assert int((table.rows & 0xFFFF).max(initial=0)) < len(table.rules)
    return table


def symbol(path: Path, name: str) -> int:
    lines = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines()
    return next(int(line.split()[0], 16) for line in lines if line.endswith(f" {name}"))


def sections(path: Path, prefix: str) -> list[tuple[int, int]]:
    """(start, end) of sections with code."""
    shown = subprocess.run(["readelf", "-SW", path], capture_output=True, text=True, check=True).stdout
    rows = [line.partition("]")[2].split() for line in shown.splitlines() if "PROGBITS" in line]
    return [(int(r[2], 16), int(r[2], 16) + int(r[4], 16)) for r in rows if r[0].startswith(prefix)]


@needs_readelf
@pytest.mark.parametrize(
    "command",
    ["gcc -O2", "gcc -O3 -mavx2 -no-pie -fno-pie", "gcc -O2 -fno-omit-frame-pointer", "gcc -O1 -mstackrealign",
     "gcc -O2 -fcf-protection -Wl,-z,ibtplt", "gcc -O2 -static", "clang -O2", "clang -O3 -mavx2 -no-pie"],
)  # fmt: skip
def test_every_row_of_a_program_is_what_readelf_reads(tmp_path: Path, command: str) -> None:
    path = compiled(tmp_path, *command.split())
    assert compared(path) == []


@pytest.mark.slow
@needs_readelf
@pytest.mark.parametrize("path", [LIBC, LIBPYTHON], ids=["libc", "libpython"])
def test_the_rows_of_large_libraries_are_what_readelf_reads(path: Path) -> None:
    if not path.exists():
        pytest.skip(f"{path} is not on this machine")
    assert compared(path, most=8000) == []


@needs_readelf
@pytest.mark.parametrize("how", ["none", "zlib", "zlib-gnu", "zstd"])
def test_debug_frame_is_read_where_it_is_all_there_is(tmp_path: Path, how: str) -> None:
    path = compiled(tmp_path, "gcc", "-O2", "-g", "-fno-asynchronous-unwind-tables")
    packed = subprocess.run(["objcopy", f"--compress-debug-sections={how}", path, path], check=False)
    if packed.returncode:
        pytest.skip("objcopy cannot compress so")
    assert built(path).rule(symbol(path, "main"))["cfa_kind"] == CFA_RSP
    if how in ("none", "zlib"):  # readelf of older binutils reads no others
        assert compared(path, ".debug_frame") == []


@needs_readelf
def test_go_programs_have_the_rules_of_debug_frame_except_where_stacks_change(go_program: Path) -> None:
    table = built(go_program)
    start = symbol(go_program, "runtime.goexit.abi0")
    assert table.rule(start)["cfa_kind"] == table.rule(start + 6)["cfa_kind"] == CFA_END
    rows = [row for row in readelf_frames.rows(go_program, ".debug_frame") if row.start < row.end]
    rules = [table.rule(row.start) for row in rows]
    said = [f"rsp+{rule['cfa_offset']}" if rule["cfa_kind"] == CFA_RSP else "" for rule in rules]
    others = Counter(
        int(rule["cfa_kind"]) for rule, mine, row in zip(rules, said, rows, strict=True) if mine != row.cfa
    )
    assert others.keys() == {CFA_END, CFA_SIGNAL, CFA_OTHER_STACK, CFA_MORESTACK, CFA_UNKNOWN}
    assert others.total() < 0.02 * len(rows)


def compared(path: Path, section: str = ".eh_frame", most: int = 100_000) -> list[readelf_frames.Row]:
    """Rows of which the file's table says something else."""
    table = built(path)
    rows = [row for row in readelf_frames.rows(path, section) if row.start < row.end]
    assert len(rows) > 5
    return [row for row in rows[:: -(-len(rows) // most)] if not readelf_frames.agrees(table, row)]


def test_stripped_go_programs_have_the_same_rules(go_program: Path, tmp_path: Path) -> None:
    path = tmp_path / "stripped"
    subprocess.run(["strip", go_program, "-o", path], check=True)
    table, whole = built(path), built(go_program)
    assert [table.rule(at) for at in range(table.base, table.base + 400_000, 7)] == [
        whole.rule(at) for at in range(table.base, table.base + 400_000, 7)
    ]
    assert table.rule(symbol(go_program, "main.main"))["cfa_kind"] == CFA_RSP
    restorer = symbol(go_program, "runtime.sigreturn__sigaction.abi0")
    assert table.rule(restorer)["cfa_kind"] == table.rule(restorer - 1)["cfa_kind"] == CFA_SIGNAL


def test_stacks_of_stripped_programs_of_go_1_18_and_1_19_end_and_change_too() -> None:
    path = shutil.which("gosu")
    if path is None and not os.environ.get("CI"):
        pytest.skip("gosu is not installed: Debian 12 built it with Go 1.19")
    table = built(Path(path or "gosu"))
    functions = go_functions(Path(path or "gosu"))
    for name in ("runtime.goexit", "runtime.mstart"):
        assert table.rule(functions[name])["cfa_kind"] == CFA_END
    for name, kind in (("runtime.systemstack", CFA_SYSTEMSTACK), ("runtime.morestack", CFA_MORESTACK)):
        assert kind in {int(table.rule(at)["cfa_kind"]) for at in range(functions[name], functions[name] + 160)}
    assert table.rule(functions["main.main"])["cfa_kind"] == CFA_RSP


def test_a_go_program_with_call_frame_information_of_c_is_no_small_file(go_program: Path, tmp_path: Path) -> None:
    """Its table of functions, which says where stacks end, may be too large to be read at once."""
    path, frames = tmp_path / "with-c", tmp_path / "eh_frame"
    frames.write_bytes(bytes(4))
    subprocess.run(["objcopy", "--strip-all", "--add-section", f".eh_frame={frames}", go_program, path], check=True)
    with open(path, "rb") as file, pytest.raises(ElfTooLarge):
        unwind_table.build_small(file.fileno())
    assert built(path).rule(symbol(go_program, "runtime.goexit.abi0"))["cfa_kind"] == CFA_END


def go_functions(path: Path) -> dict[str, int]:
    """Where functions begin, by the table of the Go runtime."""
    source = bytes_reader(path.read_bytes())
    section = gopclntab.section(read_sections(source))
    table = gopclntab.read_table(source(section.offset, section.size)) if section else None
    assert table is not None
    found = read_functions(table, 1 << 40, with_calls=False)
    names = [gopclntab.text(table.data, table.names + name) for name in found.name.tolist()]
    return dict(zip(names, (table.text_start + found.start).tolist(), strict=True))


def test_functions_are_found_without_section_headers(program: Path) -> None:
    data = bytearray(program.read_bytes())
    struct.pack_into("<Q", data, 40, 0)
    struct.pack_into("<HHH", data, 58, 0, 0, 0)
    found, expected = consistent(unwind_table.build_bytes(bytes(data))), built(program)
    assert np.array_equal(found.rows, expected.rows)
    assert np.array_equal(found.rules, expected.rules)


def test_the_vdso_has_rules() -> None:
    table = consistent(unwind_table.build_bytes(vdso_bytes()))
    assert len(table.rows)
    assert len(table.chunk_start) == 2


@pytest.mark.parametrize("flags", [[], ["-fcf-protection", "-Wl,-z,ibtplt"], ["-Wl,-z,now"], ["-static"]])
def test_linkage_tables_have_rules_also_where_the_linker_gave_none(tmp_path: Path, flags: list[str]) -> None:
    with_frames = built(compiled(tmp_path, "gcc", "-O2", *flags))
    path = compiled(tmp_path, "gcc", "-O2", *flags, "-Wl,--no-ld-generated-unwind-info", name="without")
    without, places = built(path), sections(path, ".plt")
    assert places
    for start, end in places:
        for address in range(start, end):
            rule = without.rule(address)
            said = with_frames.rule(address)
            if said["cfa_kind"] != CFA_PLT or address - start >= 16:
                assert rule == said or "-static" in flags
                assert rule["cfa_kind"] in (CFA_RSP, CFA_PLT)
            else:  # the first entry
                assert (rule["cfa_kind"], rule["cfa_offset"]) == (CFA_RSP, 16 if address - start < 6 else 24)


def test_code_that_returns_from_signals_or_starts_a_program_needs_no_frames(tmp_path: Path) -> None:
    path = compiled(tmp_path, "gcc", "-O2", "-nostdlib", "-static", source=SIGNALS)
    table = built(path)
    restorer, start = symbol(path, "restorer"), symbol(path, "_start")
    assert {int(table.rule(restorer + i)["cfa_kind"]) for i in range(-1, 9)} == {CFA_SIGNAL}
    assert table.rule(start)["cfa_kind"] == table.rule(start + 6)["cfa_kind"] == CFA_END
    assert table.rule(symbol(path, "begin"))["cfa_kind"] == CFA_RSP


def test_while_greenlet_switches_stacks_nobody_knows_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "greenlet"
    subprocess.run(["g++", "-O2", "-rdynamic", HERE / "greenlet.cpp", "-o", path], check=True)
    table, moved, back = built(path), symbol(path, "moved"), symbol(path, "back")
    kinds = [int(table.rule(address)["cfa_kind"]) for address in (moved - 1, moved, back - 1, back)]
    assert kinds == [CFA_RSP, CFA_UNKNOWN, CFA_UNKNOWN, CFA_RSP]
    assert table.rule(symbol(path, GREENLET_BEGINS))["cfa_kind"] == CFA_END


def test_the_first_function_of_a_program_is_the_outermost_frame(program: Path) -> None:
    assert built(program).rule(symbol(program, "_start"))["cfa_kind"] == CFA_END


def test_a_file_that_says_nothing_about_unwinding_has_no_rules(tmp_path: Path) -> None:
    path = compiled(tmp_path, "gcc", "-O2", "-nostdlib", "-static", "-fno-asynchronous-unwind-tables", source=SIGNALS)
    table = built(path)
    assert not len(table.rows)
    assert table.rule(symbol(path, "begin"))["cfa_kind"] == 0


def test_what_is_no_program_of_a_known_machine_is_a_clear_error(program: Path) -> None:
    data = program.read_bytes()
    wrong = ((0, b"#!/bin/sh", "ELF"), (4, b"\1", "64-bit"), (18, b"\xf3", "machine 243"), (16, b"\1", "type 1"))
    for offset, value, message in wrong:
        changed = data[:offset] + value + data[offset + len(value) :]
        with pytest.raises(ElfError, match=message):
            unwind_table.build_bytes(changed)
    reader, writer = os.pipe()
    with pytest.raises(ElfError):
        unwind_table.build(reader)
    os.close(reader)
    os.close(writer)


@pytest.mark.slow
def test_damaged_files_give_a_clear_error_or_a_table(program: Path, go_program: Path, tmp_path: Path) -> None:
    debug = compiled(tmp_path, "gcc", "-O2", "-g", "-fno-asynchronous-unwind-tables")
    chance = random.Random(1)
    for path, wanted in ((program, ".eh_frame"), (debug, ".debug_frame"), (go_program, ".gopclntab")):
        whole = path.read_bytes()
        at, size = where(whole, wanted)
        for turn in range(20 if path == go_program else 120):
            damaged = bytearray(whole)
            for _ in range(chance.randrange(1, 6)):
                low, high = [(at, at + size), (0, 900), (len(whole) - 64 * 40, len(whole))][turn % 3]
                place = chance.randrange(low, high - 8)
                length = chance.choice([1, 4, 8])
                damaged[place : place + length] = chance.choice([b"\xff" * 8, bytes(8), chance.randbytes(8)])[:length]
            if turn % 10 == 9:
                del damaged[chance.randrange(len(damaged)) :]
            with contextlib.suppress(ElfError):
                consistent(unwind_table.build_bytes(bytes(damaged)))


def where(data: bytes, name: str) -> tuple[int, int]:
    """(offset, size) of a section."""
    table, count, names = struct.unpack_from("<Q12xHHHHHH", data, 40)[0], *struct.unpack_from("<HH", data, 60)
    headers = [struct.unpack_from("<I20xQQ", data, table + 64 * i) for i in range(count)]
    text = headers[names][1]
    for name_at, offset, size in headers:
        if data.startswith(name.encode() + b"\0", text + name_at):
            return offset, size
    raise AssertionError(f"no section {name}")


def test_code_over_more_addresses_than_any_program_has_is_an_error(program: Path) -> None:
    data = bytearray(program.read_bytes())
    at, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    for i in range(count):
        kind, flags = struct.unpack_from("<II", data, at + 56 * i)
        if kind == 1 and not flags & 1:
            struct.pack_into("<I", data, at + 56 * i + 4, 5)
            struct.pack_into("<Q", data, at + 56 * i + 16, 1 << 40)
    with pytest.raises(ElfError, match="spans"):
        unwind_table.build_bytes(bytes(data))


def test_rules_beyond_the_most_that_a_table_can_have_are_none() -> None:
    count = unwind_table.MAX_RULES + 500
    addresses = np.repeat(np.arange(count), 1) * 16 + 0x1000
    rules = np.array([pack(CFA_RSP, 8 * i) for i in range(count)], np.uint64)
    table = consistent(unwind_table.from_layers([UnwindSteps(addresses, rules)], 0x1000, 0x1000 + 16 * count))
    assert len(table.rules) == unwind_table.MAX_RULES
    kinds = [int(table.rule(int(address))["cfa_kind"]) for address in addresses[::200]]
    assert kinds.count(0) < 10


def test_chunks_without_code_are_empty() -> None:
    steps = UnwindSteps(np.array([0x12345, 0x12350, 0x50000, 0x50010]), np.array([pack(CFA_RSP, 8), 0] * 2, np.uint64))
    table = consistent(unwind_table.from_layers([steps], 0x11000, 0x60000))
    assert table.base == 0x10000
    assert np.diff(table.chunk_start).tolist() == [3, 0, 0, 0, 2]
    assert [int(table.rule(a)["cfa_kind"]) for a in (0x12344, 0x12345, 0x1234F, 0x12350, 0x50000, 0x50010)] == [
        0, CFA_RSP, CFA_RSP, 0, CFA_RSP, 0,
    ]  # fmt: skip
    assert table.rule(0)["cfa_kind"] == table.rule(1 << 40)["cfa_kind"] == 0


def test_a_table_comes_back_from_its_bytes(program: Path) -> None:
    table = built(program)
    found = consistent(unwind_table.from_bytes(unwind_table.to_bytes(table, "gnu:0123"), "gnu:0123"))
    assert found.base == table.base
    for name in ("chunk_start", "rows", "rules"):
        assert np.array_equal(getattr(found, name), getattr(table, name))


@given(st.data())
def test_a_damaged_table_is_noticed(data: st.DataObject) -> None:
    steps = UnwindSteps(np.array([0x1000, 0x1010]), np.array([pack(CFA_RSP, 8), 0], np.uint64))
    kept = unwind_table.to_bytes(unwind_table.from_layers([steps], 0x1000, 0x2000), "gnu:0123")
    at = data.draw(st.integers(0, len(kept) - 1))
    flipped = kept[:at] + bytes([kept[at] ^ data.draw(st.integers(1, 255))]) + kept[at + 1 :]
    for damaged, key in (
        (flipped, "gnu:0123"),
        (kept[:at], "gnu:0123"),
        (kept + b"\0", "gnu:0123"),
        (kept, "gnu:4567"),
    ):
        with pytest.raises(ValueError, match="table"):
            unwind_table.from_bytes(damaged, key)
