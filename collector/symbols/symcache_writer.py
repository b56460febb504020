"""Writes a SymCache of arrays: the file, line and function of each range of code, and the calls that are inlined."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from collector.symbols.symcache_layout import FILE, FUNCTION, HEADER, NONE, VERSION, aligned
from icestream.packed import varint

_X86_64 = 201  # of symbolic's architectures
_NO_LANGUAGE = 0


class Content(NamedTuple):
    """What a SymCache says. Files and functions in locations are places in `files` and `functions`, or NONE."""

    functions: Sequence[str]
    entries: np.ndarray  # uint32: where each function begins; NONE if it is inlined only
    files: Sequence[str]
    calls: np.ndarray  # LOCATION: where inlined functions are called
    code: np.ndarray  # LOCATION of each range; `inlined_into` is a place in `calls`, or NONE
    starts: np.ndarray  # uint32, ascending: where each range begins; it ends at the next one


def write(content: Content) -> bytes:
    """Returns the SymCache."""
    strings = _Strings()
    functions = np.zeros(len(content.functions), FUNCTION)
    functions["name"] = [strings.add(name) for name in content.functions]
    functions["folder"], functions["start"], functions["language"] = NONE, content.entries, _NO_LANGUAGE
    files = np.full(len(content.files), NONE, FILE)
    for row, path in enumerate(content.files):
        folder, slash, name = path.rpartition("/")
        files[row]["base"] = strings.add("")
        files[row]["folder"], files[row]["name"] = strings.add(folder or slash), strings.add(name)
    locations = len(content.calls) + len(content.code)
    header = HEADER.pack(
        b"SYMC", VERSION, _X86_64, len(files), len(functions), locations, len(content.starts), len(strings.data)
    )
    parts = [
        header + files.tobytes(), functions.tobytes(), content.calls.tobytes() + content.code.tobytes(),
        content.starts.astype("<u4").tobytes(),
    ]  # fmt: skip
    return b"".join(part.ljust(aligned(len(part)), b"\0") for part in parts) + bytes(strings.data)


class _Strings:
    """Each string once: its length as LEB128, then UTF-8."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._at: dict[str, int] = {}

    def add(self, text: str) -> int:
        at = self._at.get(text)
        if at is None:
            at = self._at[text] = len(self.data)
            encoded = text.encode("utf-8", "replace")
            self.data += varint(len(encoded)) + encoded
        return at
