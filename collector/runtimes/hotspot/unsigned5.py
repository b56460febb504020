"""HotSpot's compressed numbers, and the tables of lines that are made of them.

UNSIGNED5 (src/hotspot/share/utilities/unsigned5.hpp, before JDK 20 code/compressedStream.hpp): up to five bytes, each
worth 64 times the one before; a byte of 192 or more says that another one follows. Since 20 each byte is one larger
than what it stands for, so that none is zero.
"""

from collector.runtimes.lines import CodeLines

_MORE, _MOST_BYTES, _BITS = 192, 5, 6
_SMALL = 0xFF  # in a table of lines: any other byte has both differences
_MAX_LINE = 0xFFFF


def read_number(data: bytes, at: int, excluded: int) -> tuple[int, int]:
    """Returns the number at an offset and the offset behind it. Raises IndexError. `excluded`: 1 if no byte is zero."""
    value = 0
    for i in range(_MOST_BYTES):
        byte = data[at + i]
        value += byte - excluded << _BITS * i
        if byte < _MORE:
            break
    return value & 0xFFFFFFFF, at + i + 1


def read_lines(table: bytes, excluded: int) -> CodeLines:
    """Decodes the table of lines of a method (CompressedLineNumberReadStream in oops/method.hpp); a damaged one gives
    wrong lines, no errors."""
    rows: dict[int, int] = {}
    at = bytecode = line = 0
    try:
        while byte := table[at]:
            at += 1
            if byte != _SMALL:
                bytecode, line = bytecode + (byte >> 3), line + (byte & 7)
            else:
                change, at = read_number(table, at, excluded)
                bytecode += _signed(change)
                change, at = read_number(table, at, excluded)
                line += _signed(change)
            rows[bytecode] = line if 0 <= line <= _MAX_LINE else 0
    except IndexError:
        pass
    starts = sorted(rows)
    return CodeLines(starts, [rows[start] for start in starts])


def _signed(number: int) -> int:
    return number >> 1 ^ -(number & 1)
