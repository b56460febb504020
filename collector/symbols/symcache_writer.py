"""Writes a SymCache of arrays: the file, line and function of each range of code, and the calls that are inlined."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from collector.symbols.symcache_layout import FILE, FUNCTION, HEADER, LOCATION, NONE, VERSION, aligned
from icestream.columns.packed import varint

_X86_64 = 201  # of symbolic's architectures
_NO_LANGUAGE = 0


class Content(NamedTuple):
    """What a SymCache says. Files and functions in locations are places in `files` and `functions`, or NONE."""

    functions: Iterable[bytes]  # UTF-8
    entries: np.ndarray  # uint32: where each function begins; NONE if it is inlined only
    files: Sequence[str]
    calls: np.ndarray  # LOCATION: where inlined functions are called
    code: np.ndarray  # LOCATION of each range; `inlined_into` is a place in `calls`, or NONE
    starts: np.ndarray  # uint32, ascending: where each range begins; it ends at the next one


def write(content: Content) -> bytearray:
    """Returns the SymCache. Its texts are most of it, so they are written in their place."""
    functions, files = np.zeros(len(content.entries), FUNCTION), np.full(len(content.files), NONE, FILE)
    locations = len(content.calls) + len(content.code)
    sizes = [HEADER.size + files.nbytes, functions.nbytes, locations * LOCATION.itemsize, 4 * len(content.starts)]
    begins = np.cumsum([0, *map(aligned, sizes)]).tolist()
    made = bytearray(begins[-1])
    strings = _Strings(made)
    functions["name"] = np.fromiter(map(strings.append, content.functions), np.uint32, len(functions))
    functions["folder"], functions["start"], functions["language"] = NONE, content.entries, _NO_LANGUAGE
    for row, path in enumerate(content.files):
        folder, slash, name = path.rpartition("/")
        files[row]["base"] = strings.add("")
        files[row]["folder"], files[row]["name"] = strings.add(folder or slash), strings.add(name)
    counts = len(files), len(functions), locations, len(content.starts), len(made) - begins[-1]
    header = HEADER.pack(b"SYMC", VERSION, _X86_64, *counts)
    made[: sizes[0]] = header + files.tobytes()
    at = [begins[1], begins[2], begins[2] + content.calls.nbytes, begins[3]]
    for begin, part in zip(at, (functions, content.calls, content.code, content.starts.astype("<u4")), strict=True):
        made[begin : begin + part.nbytes] = part.tobytes()
    return made


class _Strings:
    """Adds texts at the end: the length of each as LEB128, then UTF-8."""

    def __init__(self, made: bytearray) -> None:
        self._made, self._begin = made, len(made)
        self._at: dict[str, int] = {}

    def add(self, text: str) -> int:
        """Returns where the text is; adds it if it is not there yet."""
        at = self._at.get(text)
        if at is None:
            at = self._at[text] = self.append(text.encode("utf-8", "replace"))
        return at

    def append(self, encoded: bytes) -> int:
        at = len(self._made) - self._begin
        self._made += varint(len(encoded)) + encoded
        return at
