"""Finds where a process keeps the trace contexts of its threads, by the files that it maps.

A process publishes OpenTelemetry thread contexts by defining the thread-local variable `otel_thread_ctx_v1` (OTEP 4947)
in a file that it maps, or Datadog's `otel_thread_ctx_nodejs_v1` in Node, and custom labels by
`custom_labels_current_set` (github.com/polarsignals/custom-labels, ABI version 1); else it may be a Go program that
sets pprof labels. Each file is read once.
"""

import os
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from collector.activity.go_labels import GoProgram, read_go
from collector.activity.tls_symbol import Libc, TlsFile, TlsSymbol, read_constant, read_file
from collector.bpf.program import ContextKind, Image, TlsPlace, image_of
from collector.elf.reader import Read, file_reader
from collector.processes import memory, pages
from collector.processes.mapped_ranges import MappedRange
from collector.processes.patience import Patiently, at_once
from collector.processes.process import folder_of

VARIABLE, _OF_NODE, _CUSTOM_LABELS = b"otel_thread_ctx_v1", b"otel_thread_ctx_nodejs_v1", b"custom_labels_current_set"
_KINDS = {
    VARIABLE: ContextKind.THREAD_CONTEXT,
    _OF_NODE: ContextKind.NODE_CONTEXT,
    _CUSTOM_LABELS: ContextKind.CUSTOM_LABELS,
}
"""What each variable holds; where a process has several, the first counts."""
_ABI, _KNOWN_ABI = b"custom_labels_abi_version", 1
MAX_FILES = 16_384  # remembered

_AGAIN_S = 60.0  # until a file that could not be opened is tried again
_AT_ENTRY = 9  # linux/auxvec.h
_MASK = (1 << 64) - 1
_NO_ANSWER = "its memory does not answer"


class ContextPublisher(NamedTuple):
    """A process that maps a file with such a variable, or a Go program that sets labels."""

    path: str  # of that file
    image: Image  # the program that the process executed before it was looked at
    place: TlsPlace | None = None  # None: the contexts cannot be read
    why: str = ""  # they cannot be read


@dataclass(frozen=True)
class _Known:
    file: TlsFile
    why_unreadable: str = ""  # for its variable; "": it can be read
    go: GoProgram | None = None
    until: float = float("inf")  # by time.monotonic

    @property
    def publishes(self) -> bool:
        return self.file.symbol is not None or self.go is not None


class ContextFinder:
    """`open_file` is FileCache.open, `patiently` FileCache.patiently. `find` is for one thread, `may_publish` for
    any."""

    def __init__(self, open_file: Callable[[str], int | None], patiently: Patiently = at_once) -> None:
        self._open_file, self._patiently = open_file, patiently
        self._files: dict[str, _Known] = {}

    def may_publish(self, ranges: Sequence[MappedRange]) -> bool:
        """Whether one of the files publishes contexts, or was not read yet."""
        now = time.monotonic()
        for file_key in {mapped_range.file_key for mapped_range in ranges}:
            known = self._files.get(file_key)
            if file_key and (known is None or known.publishes or known.until < now):
                return True
        return False

    def find(self, pid: int, ranges: Sequence[MappedRange]) -> ContextPublisher | None:
        """Looks at a process with these executable mappings; None if no file publishes contexts. Raises OSError if the
        process is gone."""
        places = {(r.file_key, r.bias): r for r in ranges if r.file_key}  # a file may be mapped several times
        files = [(mapped_range, self._known(mapped_range.file_key)) for mapped_range in places.values()]
        if not any(known.publishes for _, known in files):
            return None
        image = image_of(pid)  # before the look: if the process executes another program meanwhile, nothing is read
        defining = [
            (mapped_range, known.file.symbol, known.why_unreadable)
            for name in _KINDS
            for mapped_range, known in files
            if known.file.symbol is not None and known.file.symbol.name == name
        ]
        if not defining:
            return _find_go(pid, image, [(mapped_range, known.go) for mapped_range, known in files if known.go])
        libc = next((known.file.libc for _, known in files if known.file.libc is not None), None)
        why = "the file is not linked, or without a relocation that shows where its variables are"
        for mapped_range, symbol, why_unreadable in defining:
            if why_unreadable:
                why = why_unreadable
                continue
            path, bias = mapped_range.file.file, -mapped_range.bias & _MASK
            try:
                place = memory.patiently(pid, partial(_place, pid, symbol, bias, libc))
            except (FileNotFoundError, ProcessLookupError):
                raise
            except TimeoutError:
                why = _NO_ANSWER
            except PermissionError as error:
                why = f"its memory cannot be read: {error.strerror}"
            except OSError:  # the file is not mapped as a dynamic linker maps it
                continue
            else:
                if place is not None:
                    return ContextPublisher(path, image, place._replace(kind=_KINDS[symbol.name]))
                if libc is None:
                    why = "its C library is neither glibc nor musl"
        return ContextPublisher(defining[0][0].file.file, image, why=why)

    def _known(self, file_key: str) -> _Known:
        known = self._files.get(file_key)
        if known is None or known.until < time.monotonic():
            try:
                known = self._patiently(file_key, lambda: self._read(file_key), longer=True)
            except TimeoutError:
                known = _Known(TlsFile(), until=time.monotonic() + _AGAIN_S)
            while len(self._files) >= MAX_FILES:
                del self._files[next(iter(self._files))]
            self._files[file_key] = known
        return known

    def _read(self, file_key: str) -> _Known:
        descriptor = self._open_file(file_key)
        if descriptor is None:
            return _Known(TlsFile(), until=time.monotonic() + _AGAIN_S)
        try:
            read = file_reader(descriptor)
            found = read_file(read, *_KINDS)
            return _Known(found, _why_unreadable(read, found), read_go(read))
        finally:
            os.close(descriptor)


def _why_unreadable(read: Read, found: TlsFile) -> str:
    if found.symbol is None or found.symbol.name != _CUSTOM_LABELS or (abi := read_constant(read, _ABI)) == _KNOWN_ABI:
        return ""
    return f"its custom labels have {'no ABI version' if abi is None else f'ABI version {abi}'}, and only 1 is read"


def _find_go(pid: int, image: Image, found: Sequence[tuple[MappedRange, GoProgram]]) -> ContextPublisher:
    try:
        entry = memory.patiently(pid, partial(_entry, pid))
    except PermissionError as error:
        return ContextPublisher(found[0][0].file.file, image, why=f"its memory cannot be read: {error.strerror}")
    except TimeoutError:
        return ContextPublisher(found[0][0].file.file, image, why=_NO_ANSWER)
    for mapped_range, go in found:
        if go.entry - mapped_range.bias & _MASK == entry:
            return ContextPublisher(mapped_range.file.file, image, go.place, go.why)
    return ContextPublisher(found[0][0].file.file, image, why="it is a Go library in another program")


def _place(pid: int, symbol: TlsSymbol, bias: int, libc: Libc | None) -> TlsPlace | None:
    def read(address: int, size: int) -> bytes:
        (data,) = pages.read(pid, [(address, size)])
        if data is None:
            raise OSError("nothing is mapped there")
        return data

    is_executable = bool(symbol.entry) and symbol.entry + bias & _MASK == _entry(pid)
    return symbol.place(read, bias, is_executable, libc)


def _entry(pid: int) -> int | None:
    """Where the program of a process starts, see getauxval(3)."""
    with open(f"{folder_of(pid)}/auxv", "rb") as file:
        vector = file.read()
    return dict(struct.iter_unpack("<QQ", vector[: len(vector) // 16 * 16])).get(_AT_ENTRY)
