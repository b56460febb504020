"""How to unwind the stack from any instruction of an ELF file: the table that bpf/unwind.h reads, made of the file.

Addresses are ELF virtual addresses; 64 KiB of them are a chunk. x86-64. On disk a table is a header (_HEADER), the key
it is kept under, then its arrays as they are: rules, chunk_start, rows; the checksum is XXH3 of all that but itself.
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from xxhash import xxh3_64_intdigest

from collector import cfi_file, cfi_sources
from collector.cfi_error import CfiError as CfiError
from collector.cfi_file import File
from collector.cfi_steps import NONE, UNCOVERED, Steps, at, merged, union

RULE = np.dtype([("cfa_kind", "u1"), ("rbp_kind", "u1"), ("rbp_offset", "<i2"), ("cfa_offset", "<i4")])
"""struct rule of bpf/unwind.h; the kinds are those of cfi_steps."""

CHUNK_BYTES = 1 << 16
MAX_RULES = 1 << 16
FORMAT = 1
"""Of tables on disk; another one when the layout changes, or what tables say of the same file."""

_MAGIC = b"icestrUT"
_HEADER = struct.Struct("<Q8sIIqQQQ")  # checksum, magic, format, bytes of key, base, rules, chunks + 1, rows


@dataclass(frozen=True)
class UnwindTable:
    base: int  # ELF virtual address of chunk 0, a multiple of CHUNK_BYTES
    chunk_start: np.ndarray  # uint32 (c+1,): the rows of chunk i are rows[chunk_start[i]:chunk_start[i+1]]
    rows: np.ndarray  # uint32 (n,): (vaddr & 0xFFFF) << 16 | row of rules; ascending in a chunk, the first one at 0
    rules: np.ndarray  # RULE (r,), r <= MAX_RULES; rules[0] is NONE

    @property
    def has_rules(self) -> bool:
        """False where the file says nothing about unwinding."""
        return len(self.rows) > 0

    def rule(self, vaddr: int) -> Any:
        """The rule (a scalar of type RULE) at an ELF address."""
        chunk, low = (vaddr - self.base) >> 16, vaddr & 0xFFFF
        if not 0 <= chunk < len(self.chunk_start) - 1:
            return self.rules[0]
        rows = self.rows[self.chunk_start[chunk] : self.chunk_start[chunk + 1]]
        found = int(np.searchsorted(rows >> 16, low, side="right")) - 1
        return self.rules[int(rows[found]) & 0xFFFF] if found >= 0 else self.rules[0]


def build(descriptor: int) -> UnwindTable:
    """The table of an open ELF file. Raises CfiError where it is no x86-64 program or library, or not to be read."""
    return _build(cfi_file.from_descriptor(descriptor))


def build_bytes(data: bytes) -> UnwindTable:
    """The table of a file that is in memory (the vDSO). Raises CfiError."""
    return _build(cfi_file.from_bytes(data))


def to_bytes(table: UnwindTable, key: str) -> bytes:
    """The table as it is kept on disk under a key."""
    name = key.encode()
    counts = len(table.rules), len(table.chunk_start), len(table.rows)
    arrays = table.rules.tobytes(), table.chunk_start.astype("<u4").tobytes(), table.rows.astype("<u4").tobytes()
    rest = _HEADER.pack(0, _MAGIC, FORMAT, len(name), table.base, *counts)[8:] + b"".join((name, *arrays))
    return xxh3_64_intdigest(rest).to_bytes(8, "little") + rest


def from_bytes(data: bytes, key: str) -> UnwindTable:
    """What `to_bytes` made; the arrays lie in `data`. Raises ValueError where it is damaged, of another format or of
    another key."""
    if len(data) < _HEADER.size:
        raise ValueError(f"the table ends after {len(data)} bytes")
    checksum, magic, format, name_size, base, *counts = _HEADER.unpack_from(data)
    sizes = [name_size, *(count * size for count, size in zip(counts, (RULE.itemsize, 4, 4), strict=True))]
    if magic != _MAGIC or format != FORMAT or _HEADER.size + sum(sizes) != len(data):
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


def _build(file: File) -> UnwindTable:
    return from_steps(cfi_sources.steps(file), int(file.code[0, 0]), int(file.code[-1, 1]))


def from_steps(steps: Steps, start: int, end: int) -> UnwindTable:
    """The table of rules over the addresses from `start` to `end`."""
    base = start & -CHUNK_BYTES
    rule = np.where(steps.rule == np.uint64(UNCOVERED), np.uint64(NONE), steps.rule)
    inside = steps.address < end
    some = merged(np.append(steps.address[inside], end), np.append(rule[inside], np.uint64(NONE)))
    firsts = np.arange(base, end, CHUNK_BYTES, dtype=np.int64)
    address = union(firsts, some.address[some.address < end])
    rule = at(some, address)
    rule[rule == np.uint64(UNCOVERED)] = NONE
    chunk = (address - base) >> 16
    in_use = np.bincount(chunk[rule != NONE], minlength=len(firsts)) > 0
    keep = in_use[chunk]
    address, rule, chunk = address[keep], rule[keep], chunk[keep]
    counts = np.bincount(chunk, minlength=len(firsts))
    rules, number = _numbered(rule)
    rows = (address.astype(np.uint32) & 0xFFFF) << 16 | number.astype(np.uint32)
    return UnwindTable(base, np.append(0, np.cumsum(counts)).astype(np.uint32), rows, rules)


def _numbered(rule: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(distinct rules as RULE, NONE first; the number of each). Those used least become NONE beyond MAX_RULES."""
    distinct = np.sort(np.unique(rule))
    number = np.searchsorted(distinct, rule)
    order = np.argsort(-np.bincount(number, minlength=len(distinct)), kind="stable")
    order = order[distinct[order] != NONE][: MAX_RULES - 1]
    numbers = np.zeros(len(distinct), np.int64)
    numbers[order] = np.arange(1, len(order) + 1)
    return np.append(np.uint64(NONE), distinct[order]).astype("<u8").view(RULE), numbers[number]
