"""Scripts: their names, and in which line a position of their source is."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np

from collector.runtimes.v8.heap import Heap, Words, is_pointer
from collector.runtimes.v8.layout import V8Text

MAX_SOURCE_BYTES = 16 << 20
_AT_ONCE = 1 << 20
MAX_LINES = 1 << 20
"""So many of all scripts are remembered: 4 MB."""
MAX_SCRIPTS = 256
MAX_NAME = 500
_SOURCE, _NAME, _LINE_OFFSET, _LINE_ENDS, _WORDS = 1, 2, 3, 7, 8  # words of a Script
_LENGTH, _ELEMENTS = 8, 16  # of a FixedArray
_NO_LINES = np.empty(0, np.int32)


class Script(NamedTuple):
    name: str
    ends: np.ndarray  # int32: positions of line ends; empty if they are not known
    line_offset: int  # of the first line

    def line(self, position: int) -> int:
        """Returns the line of a position, from 1; 0 if it is not known."""
        if not len(self.ends) or position < 0:
            return 0
        return int(np.searchsorted(self.ends, position)) + 1 + self.line_offset


class Scripts:
    """Reads scripts, and remembers line ends of those that were used last. For one thread at a time."""

    def __init__(self) -> None:
        self._ends: OrderedDict[tuple[int, Words], np.ndarray] = OrderedDict()  # by process and words of the script

    def read(self, pid: int, heap: Heap, text: V8Text, pointers: Sequence[int]) -> dict[int, Script]:
        """Returns those of the objects that are scripts."""
        distinct = [pointer for pointer in dict.fromkeys(pointers) if is_pointer(pointer)]
        heads = heap.words(distinct, 0, _WORDS)
        types = heap.types_of([words[0] if words else 0 for words in heads])
        found = {
            pointer: words
            for pointer, words, kind in zip(distinct, heads, types, strict=True)
            if words is not None and kind == text.script_type
        }
        names = heap.texts([words[_NAME] for words in found.values()])
        return {
            pointer: Script(_path(name or ""), self._lines(pid, heap, text, words), _offset(words[_LINE_OFFSET]))
            for (pointer, words), name in zip(found.items(), names, strict=True)
        }

    def _lines(self, pid: int, heap: Heap, text: V8Text, words: Words) -> np.ndarray:
        key = pid, (words[_SOURCE], words[_NAME])
        ends = self._ends.pop(key, None)
        if ends is None:
            ends = _read_ends(heap, text, words[_LINE_ENDS])
        if ends is None:
            ends = _count_ends(heap, words[_SOURCE])
        self._ends[key] = ends
        while len(self._ends) > MAX_SCRIPTS or sum(map(len, self._ends.values())) > MAX_LINES:
            self._ends.popitem(last=False)
        return ends


def _read_ends(heap: Heap, text: V8Text, array: int) -> np.ndarray | None:
    """The line ends that V8 has counted; None if it has not yet."""
    (head,) = heap.words([array], 0, 2)
    count = head[1] >> 32 if head else 0
    if not head or heap.types_of([head[0]]) != [text.array_type] or not 0 < count <= MAX_LINES:
        return None
    data = _read(heap, array - 1 + _ELEMENTS, 8 * count)
    return None if data is None else (np.frombuffer(data, np.uint64) >> np.uint64(32)).astype(np.int32)


def _count_ends(heap: Heap, source: int) -> np.ndarray:
    """Counts the ends of lines in the source."""
    where = heap.flat(source)
    if where is None or not 0 < where.length * where.width <= MAX_SOURCE_BYTES:
        return _NO_LINES
    data = _read(heap, where.address, where.length * where.width)
    if data is None:
        return _NO_LINES
    characters = np.frombuffer(data, np.uint8 if where.width == 1 else np.uint16)
    ends = characters == ord("\n")
    if where.width == 2:
        ends |= (characters == 0x2028) | (characters == 0x2029)
    returns = np.flatnonzero(characters == ord("\r"))  # the end of a line, unless a line feed follows
    ends[returns] = characters[np.minimum(returns + 1, len(characters) - 1)] != ord("\n")
    return np.append(np.flatnonzero(ends), len(characters)).astype(np.int32)[:MAX_LINES]


def _read(heap: Heap, address: int, size: int) -> bytes | None:
    """Reads more than can be read at once."""
    data = b""
    for at in range(0, size, _AT_ONCE):
        (part,) = heap.areas([(address + at, min(_AT_ONCE, size - at))])
        if part is None:
            return None
        data += part
    return data


def _offset(word: int) -> int:
    """A small integer that may be negative."""
    return (word >> 32) - (word >> 63 << 32)


def _path(name: str) -> str:
    """The name of a script as a file: modules have URLs. Those that hold the whole source are cut."""
    if name.startswith("file://"):
        return unquote(urlsplit(name).path)[:MAX_NAME]
    return name.partition(",")[0][:50] if name.startswith("data:") else name[:MAX_NAME]
