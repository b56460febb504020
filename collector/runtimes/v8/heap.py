"""Reads objects on V8's heap in the memory of a process, many at a time: words, types, and characters of strings.

A process's memory is not trusted: sizes, parts and depths are limited, and anything may be missing.
"""

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

ReadAreas = Callable[[Sequence[tuple[int, int]]], list[bytes | None]]
"""(address, size) of areas -> the bytes of each; None where it cannot be read completely."""

MAX_CHARACTERS = 1000
"""So many of a string are read."""
NO_TYPE = -1
ELEMENTS = 16
"""Where those of an array are: its length lies before."""
_TYPE = 12  # in a map
_MAX_PARTS, _MAX_DEPTH = 16, 8  # of a string
_SEQUENTIAL, _CONS, _EXTERNAL, _SLICED, _THIN = 0, 1, 2, 3, 5
_REPRESENTATION, _ONE_BYTE, _UNCACHED = 7, 8, 16  # an uncached external string does not say where its characters are
_CHARACTERS = 16
_TAIL = {_CONS: (16, 2), _EXTERNAL: (24, 1), _SLICED: (16, 2), _THIN: (16, 1)}
"""The offset and number of the words that say where a string has its characters, if it has them elsewhere."""

Words = tuple[int, ...]


class _Part(NamedTuple):
    """Characters [start, start + MAX_CHARACTERS) of a string."""

    string: int
    start: int


class Characters(NamedTuple):
    """Where characters are: `count` of one or two bytes at an address."""

    address: int
    length: int
    width: int


class Heap:
    """Remembers types of maps: for one look at a process. Pointers are tagged, as the heap has them."""

    def __init__(self, areas: ReadAreas, strings_end: int) -> None:
        """`strings_end`: see layout.V8Text."""
        self._areas, self._strings_end = areas, strings_end
        self._types: dict[int, int] = {}

    def areas(self, wanted: Sequence[tuple[int, int]]) -> list[bytes | None]:
        """As ReadAreas; asks for nothing if all sizes are 0."""
        some = [i for i, (_, size) in enumerate(wanted) if size]
        result: list[bytes | None] = [b""] * len(wanted)
        for i, data in zip(some, self._areas([wanted[i] for i in some]) if some else (), strict=True):
            result[i] = data
        return result

    def words(self, objects: Sequence[int], offset: int, count: int) -> list[Words | None]:
        """Returns `count` words of each object from an offset on; None where it is no pointer, or cannot be read."""
        return self.words_at([(pointer, offset, count) for pointer in objects])

    def words_at(self, wanted: Sequence[tuple[int, int, int]]) -> list[Words | None]:
        """As `words`, with an offset and a count for each object."""
        spans = [(at - 1 + offset, 8 * count) if is_pointer(at) else (0, 0) for at, offset, count in wanted]
        return [
            struct.unpack(f"<{size // 8}Q", data) if size and data is not None else None
            for (_, size), data in zip(spans, self.areas(spans), strict=True)
        ]

    def types(self, objects: Sequence[int]) -> list[int]:
        """Returns the instance type of each object; NO_TYPE where there is none."""
        return self.types_of([words[0] if words else 0 for words in self.words(objects, 0, 1)])

    def types_of(self, maps: Sequence[int]) -> list[int]:
        """Returns the instance type of the objects with each of these maps."""
        new = [pointer for pointer in dict.fromkeys(maps) if is_pointer(pointer) and pointer not in self._types]
        read = self.areas([(pointer - 1 + _TYPE, 2) for pointer in new])
        self._types |= {
            pointer: NO_TYPE if data is None else int.from_bytes(data, "little")
            for pointer, data in zip(new, read, strict=True)
        }
        return [self._types.get(pointer, NO_TYPE) for pointer in maps]

    def arrays(
        self, pointers: Sequence[int], types: Collection[int], width: int, most_bytes: int
    ) -> list[bytes | None]:
        """Returns the elements of each array, of `width` bytes; None for what has none of these types, or is large."""
        heads = self.words(pointers, 0, 2)
        kinds = self.types_of([head[0] if head else 0 for head in heads])
        sizes = [
            (head[1] >> 32) * width if head and kind in types else 0 for head, kind in zip(heads, kinds, strict=True)
        ]
        return self.areas(
            [
                (pointer - 1 + ELEMENTS, size) if 0 < size <= most_bytes else (0, 0)
                for pointer, size in zip(pointers, sizes, strict=True)
            ]
        )

    def texts(self, strings: Sequence[int]) -> list[str | None]:
        """Returns at most MAX_CHARACTERS of each string; None for what is none, or cannot be read."""
        found: list[list[_Part | Characters] | None] = [[_Part(pointer, 0)] for pointer in strings]
        for _ in range(_MAX_DEPTH):
            parts = [part for text in found if text for part in text if isinstance(part, _Part)]
            if not parts:
                break
            known = dict(zip(parts, self._look(parts), strict=True))
            found = [_replaced(text, known) for text in found]
        spans = [part for text in found if text for part in text if isinstance(part, Characters)]
        data = iter(self.areas([(part.address, part.length * part.width) for part in spans]))
        return [_joined(text, data) for text in found]

    def flat(self, string: int) -> Characters | None:
        """Returns where all characters of a string are; None if they are not in one piece."""
        for _ in range(_MAX_DEPTH):
            (part,) = self._look([_Part(string, 0)], limit=1 << 30)
            if part is None or len(part) != 1:
                return None
            if isinstance(part[0], Characters):
                return part[0]
            if part[0].start:
                return None
            string = part[0].string
        return None

    def _look(self, parts: Sequence[_Part], limit: int = MAX_CHARACTERS) -> list[list[_Part | Characters] | None]:
        """Goes one step from each part towards its characters."""
        heads = self.words([part.string for part in parts], 0, 2)
        types = self.types_of([head[0] if head else 0 for head in heads])
        kinds = [kind & _REPRESENTATION if 0 <= kind < self._strings_end else NO_TYPE for kind in types]
        tails = self.words_at(
            [(part.string, *_TAIL.get(kind, (0, 0))) for part, kind in zip(parts, kinds, strict=True)]
        )
        result: list[list[_Part | Characters] | None] = []
        for part, head, number, kind, tail in zip(parts, heads, types, kinds, tails, strict=True):
            count, width = min((head[1] >> 32 if head else 0) - part.start, limit), 1 if number & _ONE_BYTE else 2
            if count < 0 or kind == NO_TYPE or (kind in _TAIL and tail is None):
                result.append(None)
            elif kind == _SEQUENTIAL:
                result.append([Characters(part.string - 1 + _CHARACTERS + part.start * width, count, width)])
            elif tail is None or (kind == _EXTERNAL and number & _UNCACHED):
                result.append(None)
            elif kind == _EXTERNAL:
                result.append([Characters(tail[0] + part.start * width, count, width)])
            elif kind == _CONS and not part.start:
                result.append([_Part(pointer, 0) for pointer in tail])
            elif kind == _SLICED:
                result.append([_Part(tail[0], part.start + (tail[1] >> 32))])
            else:
                result.append([_Part(tail[0], part.start)] if kind == _THIN else None)
        return result


def is_pointer(word: int) -> bool:
    """Whether a word may be the address of an object: tagged, of user space, not in the first page."""
    return word & 3 == 1 and 4096 < word < 1 << 47


def decoded(data: bytes, width: int) -> str:
    return data.decode("latin-1" if width == 1 else "utf-16-le", "replace")


def _replaced(
    text: list[_Part | Characters] | None, known: dict[_Part, list[_Part | Characters] | None]
) -> list[_Part | Characters] | None:
    """The text with each part replaced by what was found; None if one of them is nothing, or there are too many."""
    result: list[_Part | Characters] = []
    for part in text or ():
        found = known[part] if isinstance(part, _Part) else [part]
        if found is None:
            return None
        result += found
    return result if text is not None and len(result) <= _MAX_PARTS else None


def _joined(text: list[_Part | Characters] | None, data: Iterator[bytes | None]) -> str | None:
    """The characters of a text; `data` yields those of each piece."""
    if text is None:
        return None
    pieces = [(part, next(data)) for part in text if isinstance(part, Characters)]
    if len(pieces) < len(text) or any(piece is None for _, piece in pieces):
        return None
    joined = "".join(decoded(piece or b"", part.width) for part, piece in pieces)
    return joined[:MAX_CHARACTERS].replace("\0", "\N{REPLACEMENT CHARACTER}")
