"""Call frame information made by hand, and a reader of its programs that does one instruction after the other."""

import struct
from dataclasses import dataclass, field

import numpy as np

from collector.unwind.cfi import records
from collector.unwind.cfi import section as cfi
from collector.unwind.cfi.records import FrameSection
from collector.unwind.cfi.steps import CALLEE_SAVED, LOST, SAVED_BY_RBP, UNCOVERED, UnwindSteps, at

CODE = 0x10000, 0x90000
"""Executable addresses of sections made here."""

RBP, RBX = CALLEE_SAVED[:2]
RBP_SAME, RBP_AT_CFA, RBP_AT_RBP, RBP_LOST = range(4)

RSP_8_RIP_AT_CFA = bytes([0x0C, 7, 8, 0x80 | 16, 1])  # def_cfa rsp+8; rip at cfa-8


def uleb(value: int) -> bytes:
    out = bytearray()
    while True:
        out.append(value & 0x7F | (0x80 if value >> 7 else 0))
        value >>= 7
        if not value:
            return bytes(out)


def sleb(value: int) -> bytes:
    out = bytearray()
    while not -64 <= value < 64:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value & 0x7F])


def record(content: bytes, wide: bool = False) -> bytes:
    content += bytes(-len(content) % 4)
    return struct.pack("<IQ", 0xFFFFFFFF, len(content)) + content if wide else struct.pack("<I", len(content)) + content


@dataclass
class Frames:
    """A section with one CIE, at address `vaddr`."""

    eh: bool = True
    encoding: int = 0x1B  # pcrel, signed 4 bytes
    initial: bytes = RSP_8_RIP_AT_CFA
    version: int = 1
    augmentation: str = "zR"
    wide: bool = False
    vaddr: int = 0x4000
    data: bytes = field(init=False)

    def __post_init__(self) -> None:
        id_ = bytes(4) if self.eh else b"\xff" * (8 if self.wide else 4)
        head = id_ + bytes([self.version]) + self.augmentation.encode() + b"\0"
        if self.version == 4:
            head += bytes([8, 0])
        head += uleb(1) + sleb(-8) + b"\x10"
        if "z" in self.augmentation:
            extra = b"".join(
                {"R": bytes([self.encoding]), "S": b"", "L": b"\x1b", "P": b"\x9b" + bytes(4)}[c]
                for c in self.augmentation[1:]
            )
            head += uleb(len(extra)) + extra
        self.data = record(head + self.initial, self.wide)

    def function(self, start: int, length: int, program: bytes = b"", extra: bytes = b"") -> "Frames":
        """One more FDE."""
        at = len(self.data) + (12 if self.wide else 4)
        content = struct.pack("<I", at) if self.eh else struct.pack("<Q" if self.wide else "<I", 0)
        content += self._pointers(start, length, at + len(content))
        if "z" in self.augmentation:
            content += uleb(len(extra)) + extra
        self.data += record(content + program, self.wide)
        return self

    def steps(self, data_base: int | None = None) -> UnwindSteps:
        section = FrameSection(records.padded(self.data), self.vaddr, self.eh, data_base)
        return cfi.steps(section, records.read(section), np.array([CODE], np.int64))

    def rule(self, address: int) -> tuple[int, int, int, int] | None:
        """(cfa_kind, cfa_offset, rbp_kind, rbp_offset) at an address; None: nothing is said."""
        return unpacked(int(at(self.steps(), np.array([address]))[0]))

    def _pointers(self, start: int, length: int, at: int) -> bytes:
        number_format = {0: "Q", 2: "H", 3: "I", 4: "Q", 0xA: "h", 0xB: "i", 0xC: "q"}[self.encoding & 0x0F]
        if "R" not in self.augmentation:
            return struct.pack("<QQ", start, length)
        base = {0x00: 0, 0x10: self.vaddr + at, 0x30: 0x8000}[self.encoding & 0x70]
        return struct.pack(f"<{number_format}{number_format.upper()}", start - base, length)


def unpacked(rule: int) -> tuple[int, int, int, int] | None:
    if rule == UNCOVERED:
        return None
    kind, (offset,) = rule & 0x7F, struct.unpack("<i", rule.to_bytes(8, "little")[4:])
    place = saved(rule)[RBP]
    if place in (0, LOST):
        return kind & ~SAVED_BY_RBP, offset, RBP_LOST if place else RBP_SAME, 0
    if kind & SAVED_BY_RBP:
        return kind & ~SAVED_BY_RBP, offset, RBP_AT_RBP, 8 - 8 * place
    return kind, offset, RBP_AT_CFA, -8 - 8 * place


def saved(rule: int) -> dict[int, int]:
    """What a rule says of each callee-saved register."""
    return {number: rule >> 8 + 4 * i & 15 for i, number in enumerate(CALLEE_SAVED)}
