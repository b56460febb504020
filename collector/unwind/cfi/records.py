"""The records of .eh_frame and .debug_frame: CIEs, and the FDEs of all functions as arrays.

Formats: LSB 5.0 Core, 10.6 ("Exception Frames"); DWARF 5, section 6.4.1. Everything is checked: invalid records are
left out, so the code that they would cover has no rule.
"""

import struct
from array import array
from dataclasses import dataclass

import numpy as np

from collector.elf.error import ElfError
from collector.unwind.cfi import leb
from collector.unwind.cfi.machine import AMD64, Machine
from icestream.columns import sorted_keys

MAX_RECORDS = 4 << 20
MAX_CIES = 1 << 16
MAX_CIE_BYTES = 512
MAX_PROGRAM_BYTES = 1 << 16
_MAX_VADDR = 1 << 62
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_OMIT, _INDIRECT = 0xFF, 0x80
_ABSOLUTE, _PCREL, _DATAREL = 0x00, 0x10, 0x30
_FORMATS = {0: "<u8", 2: "<u2", 3: "<u4", 4: "<u8", 0xA: "<i2", 0xB: "<i4", 0xC: "<i8"}


@dataclass(frozen=True)
class FrameSection:
    """`data` (uint8) is the section, followed by cfi_leb.PADDING zero bytes."""

    data: np.ndarray
    vaddr: int
    eh: bool  # .eh_frame, not .debug_frame
    data_base: int | None = None  # what DW_EH_PE_datarel counts from
    machine: Machine = AMD64

    @property
    def size(self) -> int:
        return len(self.data) - leb.PADDING


@dataclass(frozen=True)
class Cie:
    """What several FDEs have in common."""

    encoding: int
    augmented: bool  # FDEs carry augmentation data
    signal: bool
    code_align: int
    data_align: int
    program: bytes


@dataclass(frozen=True)
class Fdes:
    """n functions in the order of the section; all arrays are int64 (n,). Their programs lie in the section in the same
    order and do not overlap."""

    start: np.ndarray  # ELF virtual address
    length: np.ndarray
    cie: np.ndarray  # row of `cies`
    program: np.ndarray  # offset in the section
    program_end: np.ndarray
    cies: list[Cie]


def padded(data: bytes) -> np.ndarray:
    """Returns the data of a FrameSection."""
    return np.frombuffer(data + bytes(leb.PADDING), np.uint8)


def read(section: FrameSection) -> Fdes:
    """Returns all valid FDEs. Raises ElfError if there are more records than any linker makes."""
    content, end, wide = _walk(section)
    return _read(section, content, end, wide)


def read_at(section: FrameSection, offsets: np.ndarray) -> Fdes:
    """Returns the FDEs that begin at `offsets` (int64), for a section whose end is not known."""
    offsets = sorted_keys.distinct(offsets[(offsets >= 0) & (offsets + 4 <= section.size)])
    end = offsets + 4 + leb.words(section.data, offsets, "<u4").astype(np.int64)
    fits = (end <= np.append(offsets[1:], section.size)[: len(offsets)]) & (end > offsets + 4)
    return _read(section, offsets[fits] + 4, end[fits], np.zeros(int(fits.sum()), bool))


def _walk(section: FrameSection) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns for each record where its content begins, where it ends, and whether it is 64-bit DWARF. Stops at the
    terminator or at the first record that does not fit."""
    data, size = section.data[: section.size].tobytes(), section.size
    content, ends, wide = array("q"), array("q"), array("q")
    read32, read64, at = _U32.unpack_from, _U64.unpack_from, 0
    while at + 4 <= size:
        (length,) = read32(data, at)
        begin = at + 4
        if length == 0xFFFFFFFF:
            if at + 12 > size:
                break
            (length,) = read64(data, begin)
            begin += 8
            wide.append(len(content))
        end = begin + length
        if end > size:
            break
        at = end
        if length == 0:
            if section.eh:  # the terminator; .debug_frame has none
                break
            continue
        content.append(begin)
        ends.append(end)
        if len(content) > MAX_RECORDS:
            raise ElfError(f"more than {MAX_RECORDS} records of call frame information")
    begins = np.frombuffer(content, np.int64)
    return begins, np.frombuffer(ends, np.int64), np.isin(np.arange(len(begins)), np.frombuffer(wide, np.int64))


def _read(section: FrameSection, content: np.ndarray, end: np.ndarray, wide: np.ndarray) -> Fdes:
    """Returns the FDEs among records. In .eh_frame the pointer to the CIE has 4 bytes and counts back from itself."""
    id_size = np.where(wide & (not section.eh), 8, 4)
    fits = content + id_size <= end
    content, end, id_size = content[fits], end[fits], id_size[fits]
    pointer = leb.words(section.data, content, "<u4").astype(np.int64)
    long = id_size == 8
    pointer[long] = leb.words(section.data, content[long], "<i8")
    is_cie = pointer == (0 if section.eh else np.where(long, -1, 0xFFFFFFFF))
    where = (content - pointer if section.eh else pointer)[~is_cie]
    at, ends = (content + id_size)[~is_cie], end[~is_cie]
    distinct, cie = np.unique(where, return_inverse=True)
    if len(distinct) > MAX_CIES:
        raise ElfError(f"more than {MAX_CIES} common records of call frame information")
    candidates = [_cie(section, int(offset)) for offset in distinct]
    known = np.array([c is not None for c in candidates], bool)
    rows = np.cumsum(known) - 1
    cies = [c for c in candidates if c is not None]
    keep = known[cie]
    return _fdes(section, at[keep], ends[keep], rows[cie[keep]], cies)


def _fdes(section: FrameSection, at: np.ndarray, end: np.ndarray, cie: np.ndarray, cies: list[Cie]) -> Fdes:
    data = section.data
    encoding = np.array([c.encoding for c in cies], np.int64)[cie]
    augmented = np.array([c.augmented for c in cies], bool)[cie]
    start, length = np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)
    for code in set(encoding.tolist()):
        rows = encoding == code
        number_format, size = _FORMATS[code & 0x0F], np.dtype(_FORMATS[code & 0x0F]).itemsize
        position = at[rows]
        value = leb.words(data, position, number_format).astype(np.int64)
        if code & 0x70 == _PCREL:
            value += position + section.vaddr
        elif code & 0x70 == _DATAREL:
            value += section.data_base or 0
        start[rows] = value
        length[rows] = leb.words(data, position + size, number_format.replace("i", "u")).astype(np.int64)
        at[rows] += 2 * size
    fits = at <= end
    skip, after = leb.unsigned(data, np.minimum(at, section.size))
    at = np.where(augmented, after + skip, at)
    fits &= (at <= end) & (skip >= 0) & (end - at <= MAX_PROGRAM_BYTES)
    fits &= (start > 0) & (start < _MAX_VADDR) & (length > 0) & (length < _MAX_VADDR)
    return Fdes(start[fits], length[fits], cie[fits], at[fits], end[fits], cies)


def _cie(section: FrameSection, offset: int) -> Cie | None:
    """Returns the CIE whose record begins at an offset; None if there is none or it is not supported."""
    size = section.size
    if not 0 <= offset <= size - 16:
        return None
    data = section.data[offset : offset + MAX_CIE_BYTES].tobytes()
    (length,) = _U32.unpack_from(data)
    at, id_size = 4, 4
    if length == 0xFFFFFFFF:
        (length,) = _U64.unpack_from(data, 4)
        at, id_size = 12, 4 if section.eh else 8
    end = at + length
    if end > min(len(data), size - offset) or length < 8:
        return None
    if data[at : at + id_size] != (bytes(4) if section.eh else b"\xff" * id_size):
        return None
    try:
        return _parse_cie(section, data[:end], at + id_size)
    except (IndexError, ValueError, KeyError):
        return None


def _parse_cie(section: FrameSection, data: bytes, at: int) -> Cie | None:
    version = data[at]
    name_end = data.index(0, at + 1)
    augmentation, at = data[at + 1 : name_end], name_end + 1
    if version not in (1, 3, 4) or augmentation.startswith(b"eh"):
        return None
    if version == 4:
        if data[at] != 8 or data[at + 1]:  # address size, segment selectors
            return None
        at += 2
    code_align, at = leb.read_unsigned(data, at)
    data_align, at = leb.read_signed(data, at)
    column, at = (data[at], at + 1) if version == 1 else leb.read_unsigned(data, at)
    encoding, signal = 0, False
    if augmentation.startswith(b"z"):
        length, at = leb.read_unsigned(data, at)
        program, fields = at + length, at
        for letter in augmentation[1:]:
            if letter in b"L":
                fields += 1
            elif letter in b"P":
                fields += 1 + _pointer_size(data[fields])
            elif letter in b"R":
                encoding, fields = data[fields], fields + 1
            elif letter in b"S":
                signal = True
            else:
                break
        if fields > program:
            return None
        at = program
    elif augmentation:
        return None
    if (
        column != section.machine.return_address
        or not 1 <= code_align <= 16
        or not -256 <= data_align <= 256
        or at > len(data)
    ):
        return None
    if not _usable(encoding, section):
        return None
    return Cie(encoding, augmentation[:1] == b"z", signal, code_align, data_align, data[at:])


def _usable(encoding: int, section: FrameSection) -> bool:
    base = encoding & 0x70
    if encoding == _OMIT or encoding & _INDIRECT or encoding & 0x0F not in _FORMATS:
        return False
    return base in (_ABSOLUTE, _PCREL) or (base == _DATAREL and section.data_base is not None)


def _pointer_size(encoding: int) -> int:
    return 0 if encoding == _OMIT else np.dtype(_FORMATS[encoding & 0x0F]).itemsize
