"""Unwinding tables: how to unwind the stack from any instruction of an ELF file for x86-64 or aarch64.
bpf/unwind.h reads them.

Addresses are ELF virtual addresses; a chunk is 64 KiB of them. On disk a table is a header (_HEADER), its key, then the
arrays: rules, chunk_start, rows. The checksum is the XXH3 hash of everything behind it.
"""

import struct
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from xxhash import xxh3_64_intdigest

from collector.elf.error import ElfTooLarge
from collector.unwind.cfi import code_file, go, sources
from collector.unwind.cfi.code_file import CHUNK_BYTES, CodeFile
from collector.unwind.cfi.steps import NONE, UNCOVERED, UnwindSteps, at, merged, overlay, part, union
from collector.unwind.tables.stored_rows import StoredRows

RULE = np.dtype([("cfa_kind", "u1"), ("saved", "u1", 3), ("cfa_offset", "<i4")])
"""struct rule of bpf/maps.h; cfi_steps says what it means."""

SMALL_SECTION_BYTES, SMALL_CODE_BYTES = 1 << 19, 1 << 24
MAX_RULES = 1 << 16
_WINDOW_BYTES = 256 * CHUNK_BYTES  # of code that is built at once: limits memory
FORMAT = 4
"""The version of tables on disk. It changes with the layout, and when the table of the same file becomes another."""

_MAGIC = b"icestrUT"
_HEADER = struct.Struct("<Q8sIIqQQQ")  # checksum, magic, format, bytes of key, base, rules, chunks + 1, rows


@dataclass(frozen=True)
class UnwindTable:
    base: int  # ELF virtual address of chunk 0, a multiple of CHUNK_BYTES
    chunk_start: np.ndarray  # uint32 (c+1,): the rows of chunk i are rows[chunk_start[i]:chunk_start[i+1]]
    rows: np.ndarray  # uint32 (n,): (vaddr & 0xFFFF) << 16 | row of rules; ascending in a chunk, the first one at 0
    rules: np.ndarray  # RULE (r,), r <= MAX_RULES; rules[0] is NONE
    stored: StoredRows | None = None  # the same rows, if they can be read from disk

    def rule(self, vaddr: int) -> Any:
        """Returns the rule (a scalar of type RULE) at an ELF address."""
        chunk, low = (vaddr - self.base) >> 16, vaddr & 0xFFFF
        if not 0 <= chunk < len(self.chunk_start) - 1:
            return self.rules[0]
        rows = self.rows[self.chunk_start[chunk] : self.chunk_start[chunk + 1]]
        row = int(np.searchsorted(rows >> 16, low, side="right")) - 1
        return self.rules[int(rows[row]) & 0xFFFF] if row >= 0 else self.rules[0]


def build(descriptor: int) -> UnwindTable:
    """Returns the table of an open ELF file. Raises ElfError if it is no program or library for a
    machine with tables, or damaged."""
    return _build(code_file.from_descriptor(descriptor))


def build_small(descriptor: int) -> UnwindTable:
    """Returns the table of a file so small that it takes milliseconds, as most do. Raises ElfError; ElfTooLarge for a
    larger file."""
    file = code_file.from_descriptor(descriptor, SMALL_SECTION_BYTES)
    code_bytes = (file.code[:, 1] - file.code[:, 0]).sum()
    if ".eh_frame" not in file.by_name or go.is_go(file) or code_bytes > SMALL_CODE_BYTES:
        raise ElfTooLarge("more than a small file")
    return _build(file)


def build_bytes(data: bytes) -> UnwindTable:
    """Returns the table of a file that is in memory (the vDSO). Raises ElfError."""
    return _build(code_file.from_bytes(data))


def to_bytes(table: UnwindTable, key: str) -> bytes:
    """Returns the table as it is stored under a key."""
    name = key.encode()
    counts = len(table.rules), len(table.chunk_start), len(table.rows)
    arrays = table.rules.tobytes(), table.chunk_start.astype("<u4").tobytes(), table.rows.astype("<u4").tobytes()
    rest = _HEADER.pack(0, _MAGIC, FORMAT, len(name), table.base, *counts)[8:] + b"".join((name, *arrays))
    return xxh3_64_intdigest(rest).to_bytes(8, "little") + rest


def from_file(descriptor: int, key: str) -> UnwindTable:
    """Reads a file that has what `to_bytes` returned, as `from_bytes` does. Raises OSError, too."""
    with open(descriptor, "rb", buffering=0, closefd=False) as file:
        data = file.readall()
    table = from_bytes(data, key)
    at = len(data) - table.rows.nbytes
    return replace(table, stored=StoredRows(descriptor, at, len(table.rows)))


def from_bytes(data: bytes, key: str) -> UnwindTable:
    """Reads what `to_bytes` returned; the arrays lie in `data`. Raises ValueError if it is damaged, or has another
    format or key."""
    if len(data) < _HEADER.size:
        raise ValueError(f"the table ends after {len(data)} bytes")
    checksum, magic, version, name_size, base, *counts = _HEADER.unpack_from(data)
    sizes = [name_size, *(count * size for count, size in zip(counts, (RULE.itemsize, 4, 4), strict=True))]
    if magic != _MAGIC or version != FORMAT or _HEADER.size + sum(sizes) != len(data):
        raise ValueError(f"expected a table of format {FORMAT}")
    if checksum != xxh3_64_intdigest(memoryview(data)[8:]):
        raise ValueError("the table is damaged")
    name_end = _HEADER.size + name_size
    if data[_HEADER.size : name_end] != key.encode():
        raise ValueError("the table is another file's")
    rules = np.frombuffer(data, RULE, counts[0], name_end)
    chunk_start = np.frombuffer(data, "<u4", counts[1], name_end + sizes[1])
    rows = np.frombuffer(data, "<u4", counts[2], name_end + sizes[1] + sizes[2])
    return UnwindTable(base, chunk_start, rows, rules)


def _build(file: CodeFile) -> UnwindTable:
    return from_layers(sources.layers(file), int(file.code[0, 0]), int(file.code[-1, 1]))


def from_layers(layers: list[UnwindSteps], start: int, end: int) -> UnwindTable:
    """Returns the table of the addresses from `start` to `end`: at each the rule of the first layer that has one. Of
    more than MAX_RULES distinct rules, the others become NONE."""
    base = start & -CHUNK_BYTES
    numbers = {NONE: 0}
    rows, counts = [np.zeros(0, np.uint32)], [np.zeros(0, np.int64)]
    for first in range(base, end, _WINDOW_BYTES):
        after = min(first + _WINDOW_BYTES, end)
        steps = UnwindSteps(np.array([first]), np.array([UNCOVERED], np.uint64))
        for layer in layers:
            steps = overlay(steps, part(layer, first, after))
        address, rule = _chunked(steps, first, after)
        chunk = (address - first) >> 16
        rows.append((address.astype(np.uint32) & 0xFFFF) << 16 | _numbered(rule, numbers))
        counts.append(np.bincount(chunk, minlength=-(-(after - first) // CHUNK_BYTES)))
    chunk_start = np.append(0, np.cumsum(np.concatenate(counts))).astype(np.uint32)
    return UnwindTable(base, chunk_start, np.concatenate(rows), np.array(list(numbers), "<u8").view(RULE))


def _chunked(steps: UnwindSteps, start: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns addresses and rules: at the start of each chunk that has a rule, and wherever the rule changes."""
    steps = merged(steps.address, np.where(steps.rule == np.uint64(UNCOVERED), np.uint64(NONE), steps.rule))
    address = union(np.arange(start, end, CHUNK_BYTES, dtype=np.int64), steps.address)
    rule = at(steps, address)
    rule[rule == np.uint64(UNCOVERED)] = NONE
    chunk = (address - start) >> 16
    used = (np.bincount(chunk[rule != NONE], minlength=chunk[-1] + 1) > 0)[chunk]
    return address[used], rule[used]


def _numbered(rule: np.ndarray, numbers: dict[int, int]) -> np.ndarray:
    """Returns the numbers (uint32) of rules; adds new rules to `numbers`."""
    distinct = np.sort(np.unique(rule))
    for value in distinct.tolist():
        if len(numbers) < MAX_RULES:
            numbers.setdefault(value, len(numbers))
    number = np.array([numbers.get(value, 0) for value in distinct.tolist()], np.uint32)
    result: np.ndarray = number[np.searchsorted(distinct, rule)]
    return result
