"""Scripts: their names, and in which line a position of their source is."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np

from collector.runtimes.v8.heap import ELEMENTS, Heap, Words, is_pointer
from collector.runtimes.v8.layout import V8Text

MAX_SOURCE_BYTES = 16 << 20
"""So many of the sources of some functions are read."""
_AT_ONCE = 1 << 20
MAX_LINES = 1 << 20
"""So many of all scripts are remembered: 4 MB."""
MAX_SCRIPTS = 256
MAX_NAME = 500
_SOURCE, _NAME, _LINE_OFFSET, _LINE_ENDS, _WORDS = 1, 2, 3, 7, 8  # words of a Script
_NO_LINES = np.empty(0, np.int32)


class Script(NamedTuple):
    name: str
    ends: np.ndarray  # int32: positions of line ends; empty if they are not known
    line_offset: int  # of the first line

    def line(self, position: int) -> int:
        """Returns the line of a position, from 1; 0 if it is not known."""
        return int(self.lines(np.array([position]))[0])

    def lines(self, positions: np.ndarray) -> np.ndarray:
        """Returns the lines of these positions (int64), as `line` does: int64."""
        lines = np.searchsorted(self.ends, positions) + 1 + self.line_offset
        return np.where(positions < 0, 0, lines) if len(self.ends) else np.zeros(len(positions), np.int64)


class Scripts:
    """Reads scripts, and remembers line ends of those that were used last. For several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: OrderedDict[tuple[int, int, int], np.ndarray] = OrderedDict()  # by process, source and name

    def read(self, pid: int, heap: Heap, text: V8Text, pointers: Sequence[int]) -> dict[int, Script]:
        """Returns those of the objects that are scripts. Reads at most MAX_SOURCE_BYTES of sources: lines may be
        missing."""
        distinct = [pointer for pointer in dict.fromkeys(pointers) if is_pointer(pointer)]
        heads = heap.words(distinct, 0, _WORDS)
        types = heap.types_of([words[0] if words else 0 for words in heads])
        found = {
            pointer: words
            for pointer, words, kind in zip(distinct, heads, types, strict=True)
            if words is not None and kind == text.script_type
        }
        names = heap.texts([words[_NAME] for words in found.values()])
        scripts, left = {}, MAX_SOURCE_BYTES
        for (pointer, words), name in zip(found.items(), names, strict=True):
            key = pid, words[_SOURCE], words[_NAME]
            if (ends := self._known(key)) is None:
                ends, read = _read_ends(heap, text, words, left)
                left -= read
                self._remember(key, ends)
            scripts[pointer] = Script(_path(name or ""), ends, _offset(words[_LINE_OFFSET]))
        return scripts

    def _known(self, key: tuple[int, int, int]) -> np.ndarray | None:
        with self._lock:
            if key in self._ends:
                self._ends.move_to_end(key)
            return self._ends.get(key)

    def _remember(self, key: tuple[int, int, int], ends: np.ndarray) -> None:
        with self._lock:
            if len(ends):
                self._ends[key] = ends
            while len(self._ends) > MAX_SCRIPTS or sum(map(len, self._ends.values())) > MAX_LINES:
                self._ends.popitem(last=False)


def _read_ends(heap: Heap, text: V8Text, script: Words, most_bytes: int) -> tuple[np.ndarray, int]:
    """Returns the line ends of a script, and how many bytes were read for them: those that V8 has counted, or else
    those of the source."""
    array, (head,) = script[_LINE_ENDS], heap.words([script[_LINE_ENDS]], 0, 2)
    count = head[1] >> 32 if head else 0
    if head and heap.types_of([head[0]]) == [text.array_type] and 0 < 8 * count <= most_bytes:
        data = _read(heap, array - 1 + ELEMENTS, 8 * count)
        return (np.frombuffer(data, np.uint64) >> np.uint64(32)).astype(np.int32)[:MAX_LINES], 8 * count
    where = heap.flat(script[_SOURCE])
    size = where.length * where.width if where is not None else 0
    if where is None or not 0 < size <= most_bytes:
        return _NO_LINES, 0
    return _count_ends(_read(heap, where.address, size), where.width), size


def _count_ends(source: bytes, width: int) -> np.ndarray:
    characters = np.frombuffer(source, np.uint8 if width == 1 else np.uint16)
    if not len(characters):
        return _NO_LINES
    ends = characters == ord("\n")
    if width == 2:
        ends |= (characters == 0x2028) | (characters == 0x2029)
    returns = np.flatnonzero(characters == ord("\r"))  # the end of a line, unless a line feed follows
    ends[returns] = characters[np.minimum(returns + 1, len(characters) - 1)] != ord("\n")
    return np.append(np.flatnonzero(ends), len(characters)).astype(np.int32)[:MAX_LINES]


def _read(heap: Heap, address: int, size: int) -> bytes:
    """Reads more than can be read at once; b"" if that cannot be read completely."""
    parts = []
    for at in range(0, size, _AT_ONCE):
        (part,) = heap.areas([(address + at, min(_AT_ONCE, size - at))])
        if part is None:
            return b""
        parts.append(part)
    return b"".join(parts)


def _offset(word: int) -> int:
    """A small integer that may be negative."""
    return (word >> 32) - (word >> 63 << 32)


def _path(name: str) -> str:
    """The name of a script as a file: modules have URLs. Those that hold the whole source are cut."""
    if name.startswith("file://"):
        return unquote(urlsplit(name).path)[:MAX_NAME]
    return name.partition(",")[0][:50] if name.startswith("data:") else name[:MAX_NAME]
