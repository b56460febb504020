"""What a file of a stranger may cost its readers: entries, bytes and memory have bounds, whatever the file says."""

import contextlib
import os
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collector.activity.context_finder import VARIABLE
from collector.activity.go_labels import read_go
from collector.activity.tls_symbol import read_file
from collector.elf import dynamic, headers, identity, sections
from collector.elf.error import ElfError
from collector.processes import mapped_files
from collector.processes.mapped_files import FileCache, MapsEntry
from collector.runtimes.python.layout import LayoutError
from collector.runtimes.python.symbols import find_interpreter
from collector.unwind.cfi import code_file, fallback

MB = 1 << 20
MOST_MB = 8
"""The most memory: parts of one MB, and what becomes of them."""
LOAD, DYNAMIC, NOTE, TLS = 1, 2, 4, 7
PROGRAM_DATA, SYMTAB, STRTAB, NOTES, DYNSYM = 1, 2, 3, 7, 11
OBJECT, TLS_OBJECT = 1, 6


def header(segments: int = 0, sections: int = 0, sections_at: int = 0, names: int = 0) -> bytes:
    """The header of a file whose program headers follow it."""
    counts = 64, 56, segments, 64, sections, names
    return b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, sections_at, 0, *counts)


def segment(kind: int, offset: int, size: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, 5, offset, offset, offset, size, size, 4)


def section(kind: int, offset: int, size: int, link: int = 0, name: int = 0, address: int = 0) -> bytes:
    return struct.pack("<IIQQQQIIQQ", name, kind, 0, address, offset, size, link, 0, 1, 0)


class Sparse:
    """A file that has zeros between its parts; counts what is read."""

    def __init__(self, size: int, parts: dict[int, bytes]) -> None:
        self._size, self._parts = size, parts
        self.bytes = 0

    def read(self, offset: int, size: int) -> bytes:
        data = bytearray(max(0, min(size, self._size - offset)))
        for start, part in self._parts.items():
            begin, end = max(start, offset), min(start + len(part), offset + len(data))
            if begin < end:
                data[begin - offset : end - offset] = part[begin - start : end - start]
        self.bytes += len(data)
        return bytes(data)


def exporting(name: bytes, kind: int, relocation: bytes = b"", tables: int = 0, sections_mb: int = 1) -> Sparse:
    """A library that exports one symbol. Its tables of relocations, DT_RELA and DT_JMPREL, begin with `relocation`s and
    have `tables` bytes each; its sections say that symbols and names have many MB."""
    tags = {4: 0x1000, 5: 0x1100, 6: 0x1200, 7: 16 * MB, 8: tables, 23: 512 * MB, 2: tables}
    size = 1024 * MB
    parts = {
        0: header(3, 3, 0x2000)
        + segment(LOAD, 0, size)
        + segment(DYNAMIC, 0x1300, 16 * len(tags))
        + segment(TLS, 0, 64),
        0x1000: struct.pack("<IIIII", 1, 2, 1, 0, 0),  # the hash table: one bucket, a chain of one
        0x1100: b"\0" + name + b"\0",
        0x1200 + 24: struct.pack("<IBBHQQ", 1, 1 << 4 | kind, 0, 9, 0x1400, 8),
        0x1300: b"".join(struct.pack("<QQ", *tag) for tag in tags.items()),
        0x2000: section(0, 0, 0)
        + section(DYNSYM, 0x1200, sections_mb * MB, link=2)
        + section(STRTAB, 0x1100, sections_mb * MB),
        16 * MB: relocation,
        512 * MB: relocation,
    }
    return Sparse(size, parts)


def peak_mb(work: Callable[[], object]) -> float:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / MB
    finally:
        tracemalloc.stop()


def retained_mb(work: Callable[[], object]) -> float:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[0] / MB
    finally:
        tracemalloc.stop()


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The notes that are looked at."""
    looked: list[object] = []
    original = identity.notes

    def notes(data: bytes) -> Iterator[object]:
        for note in original(data):
            looked.append(note)
            yield note

    monkeypatch.setattr(identity, "notes", notes)
    return looked


def test_notes_that_all_segments_share_are_read_once(noted: list[object]) -> None:
    file = Sparse(2 * MB, {0: header(100) + segment(NOTE, MB, MB) * 100})
    assert identity.read(file.read).build_id == ""
    assert len(noted) <= 4096
    assert file.bytes < 2 * MB


def test_notes_that_all_sections_share_are_read_once(noted: list[object]) -> None:
    count = 4000
    file = Sparse(2 * MB, {0: header(sections=count, sections_at=64) + section(NOTES, MB, MB) * count})
    assert identity.read(file.read).build_id == ""
    assert len(noted) <= 4096
    assert file.bytes < 3 * MB


def test_a_build_id_behind_other_notes_is_found() -> None:
    other, own = struct.pack("<III4s4x", 4, 4, 5, b"GNU"), struct.pack("<III4s4s", 4, 4, 3, b"GNU", b"\1\2\3\4")
    notes = other * 2000 + own
    file = Sparse(2 * MB, {0: header(2) + segment(NOTE, MB, 20_000) + segment(NOTE, MB + 20_000, len(notes) - 20_000)})
    file._parts[MB] = notes
    assert identity.read(file.read).build_id == "gnu:01020304"


@pytest.mark.parametrize("count", [headers.MAX_SEGMENTS + 1, 4096, 65_535])
def test_more_program_headers_than_linkers_write_are_a_clear_error(count: int) -> None:
    file = Sparse(16 * MB, {0: header(count) + segment(NOTE, MB, MB) * count})
    with pytest.raises(ElfError, match=f"{count} program headers"):
        identity.read(file.read)
    assert file.bytes == 64


def test_more_sections_than_linkers_write_are_none() -> None:
    count = 65_000
    file = Sparse(64 * MB, {0: header(sections=count, sections_at=64, names=1) + section(STRTAB, 0, 64 * MB) * count})
    assert sections.read_sections(file.read) == []
    assert file.bytes == 64
    count = sections.MAX_SECTIONS
    file = Sparse(64 * MB, {0: header(sections=count, sections_at=64, names=1) + section(STRTAB, 0, 64 * MB) * count})
    assert peak_mb(lambda: sections.read_sections(file.read)) < MOST_MB


def test_relocations_of_one_variable_cost_no_memory() -> None:
    ours = struct.pack("<QIIQ", 0x1400, 36, 1, 0)
    file = exporting(VARIABLE, TLS_OBJECT, ours * (8 * MB // 24), 8 * MB)
    assert peak_mb(lambda: read_file(file.read, VARIABLE)) < MOST_MB
    distinct = b"".join(struct.pack("<QIIQ", place, 36, 1, 0) for place in range(10_000))
    symbol = read_file(exporting(VARIABLE, TLS_OBJECT, distinct, len(distinct)).read, VARIABLE).symbol
    assert symbol is not None
    assert 0 < len(symbol.descriptors) < 1000  # each is read in each process


def test_both_tables_of_relocations_have_one_bound() -> None:
    file = exporting(VARIABLE, TLS_OBJECT, b"", 200 * MB)
    assert read_file(file.read, VARIABLE).symbol is not None
    assert 100 * MB < file.bytes < dynamic.MAX_RELOCATION_BYTES + MB


def test_a_relocation_behind_many_others_is_found() -> None:
    """As in the largest programs, which have a million."""
    others = struct.pack("<QIIQ", 0x1400, 8, 0, 0)
    file = exporting(VARIABLE, TLS_OBJECT, others * MB + struct.pack("<QIIQ", 0x1500, 36, 1, 0), 24 * (MB + 1))
    symbol = read_file(file.read, VARIABLE).symbol
    assert symbol is not None
    assert symbol.descriptors == (0x1500,)


@pytest.mark.parametrize("name", [b"_PyRuntime", b"another"])
def test_whether_a_library_is_an_interpreter_costs_no_more_if_it_exports_much(name: bytes) -> None:
    file = exporting(name, OBJECT, sections_mb=100)

    def find() -> None:
        with contextlib.suppress(LayoutError):  # it has no version
            assert find_interpreter(file.read) is None

    assert peak_mb(find) < MOST_MB
    assert file.bytes < MB


def test_the_symbols_of_a_go_program_are_read_in_parts() -> None:
    names = b"\0.go.buildinfo\0.gopclntab\0"
    build = b"\xff Go buildinf:\x08\x02".ljust(32, b"\0") + b"\x08go1.22.1"
    parts = {
        0: header(1, 6, 0x1000, 1) + segment(TLS, 0, 64),
        0x1000: section(0, 0, 0)
        + section(STRTAB, 0x2000, len(names))
        + section(PROGRAM_DATA, 0x3000, len(build), name=1)
        + section(PROGRAM_DATA, 0x4000, 0x1000, name=15)
        + section(SYMTAB, 16 * MB, 16 * MB // 24 * 24, link=5)
        + section(STRTAB, 32 * MB, 16 * MB),
        0x2000: names,
        0x3000: build,
        0x4000: b"\0runtime/pprof.runtime_setProfLabel\0",
        32 * MB - 40: struct.pack("<IBBHQQ", 15 * MB + 1, 6, 0, 9, 56, 8),
        47 * MB: b"\0runtime.tlsg\0",
    }
    file = Sparse(48 * MB, parts)
    found = read_go(file.read)
    assert found is not None
    assert found.place is not None
    assert found.place.offset == -8
    assert peak_mb(lambda: read_go(file.read)) < MOST_MB


def test_code_that_all_segments_share_is_searched_once() -> None:
    table = b"".join(segment(LOAD, MB, 16 * MB) for _ in range(headers.MAX_SEGMENTS))
    file = Sparse(32 * MB, {0: header(headers.MAX_SEGMENTS) + table})
    fallback.signal_returns(code_file.parse(file.read))
    assert file.bytes < fallback.MAX_SCAN_BYTES + MB


def test_more_linkage_tables_than_linkers_write_are_not_read() -> None:
    count = 1000
    names = b"\0" + b"".join(b".plt%04d\0" % number for number in range(count))
    table = b"".join(section(PROGRAM_DATA, MB, MB, name=1 + 9 * number, address=MB) for number in range(count))
    named = section(0, 0, 0) + section(STRTAB, 0x1000, len(names)) + table
    file = Sparse(4 * MB, {0: header(1, 2 + count, 2 * MB, 1) + segment(LOAD, MB, MB), 0x1000: names, 2 * MB: named})
    fallback.linkage_tables(code_file.parse(file.read))
    assert MB < file.bytes < 20 * MB


def test_of_code_a_few_mb_are_hashed_wherever_segments_say_that_it_lies() -> None:
    size = 1 << 40
    loads = [segment(LOAD, 0, size)] * 40 + [segment(LOAD, MB, 4096)] * 40 + [segment(LOAD, 1 << 63, 1 << 62)] * 40
    file = Sparse(4 << 30, {0: header(len(loads)) + b"".join(loads)})
    elf = identity.read(file.read)
    file.bytes = 0
    assert peak_mb(lambda: identity.code_hash(file.read, elf)) < MOST_MB
    assert file.bytes <= identity.MAX_CODE_BYTES


def test_what_is_remembered_of_files_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has as many segments as are read."""
    for name in ("MAX_KNOWN_BYTES", "MAX_REPORTED_BYTES", "MAX_NOTED_BYTES"):
        monkeypatch.setattr(mapped_files, name, MB)
    files = FileCache()
    loads = b"".join(segment(LOAD, MB + 4096 * number, 4096) for number in range(headers.MAX_SEGMENTS - 1))

    def identify() -> None:
        for number in range(200):
            build_id = struct.pack("<20x") + struct.pack("<I", number)
            note = struct.pack("<III4s", 4, len(build_id), 3, b"GNU") + build_id
            path = tmp_path / f"{number}.so"
            table = segment(NOTE, 64 + 56 * headers.MAX_SEGMENTS, len(note)) + loads
            path.write_bytes(header(headers.MAX_SEGMENTS) + table + note)
            entry = MapsEntry(os.getpid(), 0, 4096, 0, 0, str(path))
            identity = files.identify_reported(entry, build_id, 0, os.getuid())
            assert identity is not None
            assert identity.build_id == f"gnu:{build_id.hex()}"

    assert retained_mb(identify) < 4
    files.close()
