"""SymCaches: names of addresses by build ID, from the topic icestream.symbols.

A SymCache (github.com/getsentry/symbolic) is a lookup table from addresses to functions, files and lines, with inlined
functions. A message has its URI in a symbol store, or a chunk of it. Here it is stored in a folder and memory-mapped
when it is first used.
"""

import hashlib
import json
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, BinaryIO

import zstandard
from pyarrow import fs
from symbolic.symcache import SymCache

from icestream.files import atomic_file, file_lock
from icestream.files.disk_cache import DiskCache
from icestream.process.byte_cache import ByteCache
from icestream.symbols.demangle import demangle
from icestream.symbols.line import Line
from icestream.symbols.symbol_chunks import SymbolChunks
from icestream.symbols.unnamed import in_file, unnamed
from icestream.symbols.unnamed_functions import read_unnamed
from icestream.v1.symbols_pb2 import SymbolFile

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 1 << 30
"""A larger SymCache is refused."""
MAX_CHUNKS = 4096
OPEN_FILES = 256
ENTRIES_BYTES = 32_000_000
"""Limit of what is known about build IDs."""
START_LINES_BYTES = 32_000_000
"""Limit of the first lines of functions that are remembered."""
_PLACE_BYTES = 200
_BLOCK_BYTES = 1 << 20
SCHEMES = ("file", "gs", "s3")
"""Schemes of the symbol store's URIs. pyarrow opens others, but some end the process, or import what is not
installed."""
RETRY_S = 60.0
"""How long a file that could not be fetched is not tried again, and a slow symbol store not waited for."""
FETCHERS = 4
"""Threads that fetch files beside `get`. pyarrow waits 100 s for a store that does not answer."""
_LOCKED_S = 10.0
"""Longer than any other process needs to store a file that it has."""
MAX_COMING = 1000
"""Files that are fetched, or wait for a thread, at a time. Whoever wants more of them asks later."""


_SHOWN = 200
"""Longer URIs are cut to so many characters in messages."""


class SymCacheError(ValueError):
    """A symbol file that cannot be used; the message says why."""


@dataclass(frozen=True)
class SymCacheEntry:
    """What is known about the names of a build ID."""

    build_id: str
    version: int
    load_address: int
    size: int
    sha256: str
    uri: str  # "" if it came in chunks


class _OutdatedError(Exception):
    """The folder has better names than those that were to be stored."""

    def __init__(self, stored: SymCacheEntry) -> None:
        super().__init__(stored)
        self.stored = stored


StartLines = ByteCache[tuple[str, int], int]


class Symbols:
    """An open SymCache."""

    def __init__(self, path: Path, version: int, load_address: int, starts: "StartLines") -> None:
        """`starts`: of all files, by path, version and address. Raises SymCacheError."""
        self.version = version
        self._load_address = load_address
        self._starts = starts
        self._file = f"{path}/{version}"
        try:
            self._cache = SymCache.open(str(path))  # type: ignore[no-untyped-call]
            self._unnamed = read_unnamed(path)
        except Exception as error:  # symbolic raises its own errors, and OSError
            raise SymCacheError(f"cannot open the SymCache {path}: {error}") from error

    def lookup(self, address: int, file: str) -> list[Line]:
        """Returns the lines of an ELF virtual address (for a kernel: an offset), innermost first; [] if it has none.

        A function that has no name gets one from `file`, which is mapped there (icestream/symbols/unnamed.py).
        """
        relative = address - self._load_address
        if not 0 <= relative < 2**64:
            return []
        try:
            frames = self._cache.lookup(relative)
        except Exception as error:  # a damaged file: symbolic raises errors of its own
            log.debug("lookup of %#x failed: %s", address, error)
            return []
        if not frames and self._unnamed is not None:
            start = self._unnamed.start_of(relative)
            return [] if start is None else [Line(unnamed(file, self._load_address + start), "", 0, 0)]
        last = len(frames) - 1
        return [
            Line(
                in_file(demangle(frame.symbol), file),
                frame.full_path or "",
                frame.line,
                # An inlined function has no start address of its own.
                self._starts.get_or_make((self._file, frame.sym_addr), self._start_line)
                if i == last and frame.line
                else 0,
            )
            for i, frame in enumerate(frames)
        ]

    def _start_line(self, place: tuple[str, int]) -> int:
        frames = self._cache.lookup(place[1])
        return frames[-1].line if frames else 0


class SymCaches:
    """The newest SymCache of every build ID. Safe for several threads; one folder may serve several processes."""

    def __init__(
        self, folder: Path, symbol_store: str = "", limit_bytes: int = 4 << 30, patience_s: float | None = None
    ) -> None:
        """`symbol_store`: URIs outside of it are refused; "" allows any. `limit_bytes`: of the folder. `patience_s`:
        how long `get` waits for a file of the symbol store, which goes on coming; None: until it is there. Once that
        was in vain, `get` does not wait at all for a while, so a slow store does not hold up the caller."""
        self._folder = folder
        self._patience_s = patience_s
        self._coming: set[SymCacheEntry] = set()
        self._fetchers = ThreadPoolExecutor(FETCHERS, "symbol store")
        self._slow_until_s = float("-inf")
        self._files = DiskCache(folder, ".symcache", limit_bytes, evicted=self._forget)
        self._store = symbol_store.rstrip("/")
        self._adding = threading.Lock()  # held while a file is unpacked: `get` does not wait for that
        self._lock = threading.RLock()
        self._open: OrderedDict[str, Symbols] = OrderedDict()
        self._failed: ByteCache[str, float] = ByteCache(ENTRIES_BYTES, lambda build_id, until_s: len(build_id))
        self._starts: StartLines = ByteCache(START_LINES_BYTES, lambda place, line: _PLACE_BYTES)
        folder.mkdir(parents=True, exist_ok=True)
        self._chunks = SymbolChunks(folder)
        self._entries: ByteCache[str, SymCacheEntry] = ByteCache(ENTRIES_BYTES, _entry_size)
        for entry in _read_entries(folder):
            self._entries.put(entry.build_id, entry)

    def add(self, file: SymbolFile) -> bool:
        """Adds a message; returns True if the build ID has new or better names now. Raises SymCacheError."""
        if file.error or not file.version:
            return False
        if not file.build_id or not 0 < file.size <= MAX_FILE_BYTES:
            raise SymCacheError(f"symbols of {file.build_id!r}: no build ID, or a size of {file.size} bytes")
        with self._adding:
            if file.version <= self.version(file.build_id):
                return False
            entry = SymCacheEntry(file.build_id, file.version, file.load_address, file.size, file.sha256, file.uri)
            if not file.uri:
                compressed = self._complete(file)
                if compressed is None:
                    return False
                with compressed:
                    entry = self._write(entry, _unzip(compressed, file.build_id))
            self._know(entry)
            return True

    def version(self, build_id: str) -> int:
        """Returns the version of a build ID's names; 0 if it has none."""
        entry = self._entries.get(build_id)
        return entry.version if entry else 0

    def get(self, build_id: str) -> Symbols | None:
        """Returns the names of a build ID, which are fetched and opened by the first call; None if there are none, or
        if the file has not come yet."""
        with self._lock:
            symbols = self._open.get(build_id)
            if symbols is not None:
                self._open.move_to_end(build_id)
                return symbols
            entry = self._entries.get(build_id)
            if entry is None or entry in self._coming or time.monotonic() < (self._failed.get(build_id) or 0):
                return None
            try:
                entry = self._stored(entry)
                if entry is None:
                    return None
                symbols = Symbols(self._files.path(build_id), entry.version, entry.load_address, self._starts)
            except (SymCacheError, OSError) as error:
                self._fail(build_id, error)
                return None
            self._open[build_id] = symbols
            if len(self._open) > OPEN_FILES:
                self._open.popitem(last=False)
            return symbols

    def _complete(self, file: SymbolFile) -> IO[bytes] | None:
        """Returns the compressed SymCache if this was its last missing chunk."""
        if not 1 <= file.chunks <= MAX_CHUNKS or file.chunk >= file.chunks:
            raise SymCacheError(f"symbols of {file.build_id}: chunk {file.chunk} of {file.chunks}")
        return self._chunks.add((file.build_id, file.sha256), file.chunk, file.chunks, file.data)

    def _know(self, entry: SymCacheEntry) -> None:
        """Takes names, if they are better than those that are known."""
        with self._lock:
            if entry.version > self.version(entry.build_id):
                self._entries.put(entry.build_id, entry)
                self._open.pop(entry.build_id, None)
                self._failed.pop(entry.build_id)

    def _fail(self, build_id: str, error: Exception) -> None:
        log.warning("symbols of %s: %s; trying again in %.0f s", build_id, error, RETRY_S)
        self._failed.put(build_id, time.monotonic() + RETRY_S)

    def _stored(self, entry: SymCacheEntry) -> SymCacheEntry | None:
        """Returns what lies in the folder, which may be better than `entry`, as another process may have stored it.
        Fetches the file from the symbol store if it is not there; None if it has not come yet."""
        stored = self._in_folder(entry.build_id)
        if stored is None or stored.version < entry.version:
            if not entry.uri:
                self._entries.pop(entry.build_id)
                raise SymCacheError("the file is gone from the folder")
            stored = self._fetch(entry)
        if stored is not None:
            self._know(stored)
        return stored

    def _in_folder(self, build_id: str) -> SymCacheEntry | None:
        path = self._files.use(build_id)
        return _read_entry(path.with_suffix(".json")) if path is not None else None

    def _fetch(self, entry: SymCacheEntry) -> SymCacheEntry | None:
        """Fetches a file from the symbol store; returns what lies in the folder then, None if nothing came yet.
        Raises SymCacheError and OSError."""
        if self._patience_s is None:
            return self._write(entry, fetch(entry.uri, self._store))
        if len(self._coming) >= MAX_COMING:
            return None
        self._coming.add(entry)
        fetching = self._fetchers.submit(self._fetch_beside, entry)
        if time.monotonic() >= self._slow_until_s:
            try:
                return fetching.result(self._patience_s)
            except TimeoutError:
                self._slow_until_s = time.monotonic() + RETRY_S
        return None

    def _fetch_beside(self, entry: SymCacheEntry) -> SymCacheEntry | None:
        """Runs on a thread; None if it failed."""
        try:
            return self._write(entry, fetch(entry.uri, self._store))
        except Exception as error:
            if self._entries.get(entry.build_id) == entry:  # else there are better names by now
                self._fail(entry.build_id, error)
            return None
        finally:
            self._coming.discard(entry)

    def _write(self, entry: SymCacheEntry, blocks: Iterable[bytes]) -> SymCacheEntry:
        """Stores a file, and returns its entry; if the folder has better names by the end, those stay, and it returns
        theirs. Raises SymCacheError and OSError."""
        with ExitStack() as until_stored:
            try:
                with self._files.writing(entry.build_id) as file:
                    _copy(entry, blocks, file)
                    until_stored.enter_context(self._others_wait())
                    stored = self._in_folder(entry.build_id)
                    if stored is not None and stored.version > entry.version:
                        raise _OutdatedError(stored)
            except _OutdatedError as error:
                return error.stored
            atomic_file.write(self._files.path(entry.build_id).with_suffix(".json"), json.dumps(asdict(entry)).encode())
        return entry

    @contextmanager
    def _others_wait(self) -> Iterator[None]:
        """Keeps other threads and processes from storing a file in this block: a file and its entry belong together.
        Raises OSError."""
        lock = file_lock.lock(self._folder / ".lock", _LOCKED_S)
        try:
            yield
        finally:
            os.close(lock)

    def _forget(self, path: Path) -> None:
        """Follows the eviction of a file."""
        entry = _read_entry(path.with_suffix(".json"))
        path.with_suffix(".json").unlink(missing_ok=True)
        if entry and not entry.uri:
            self._entries.pop(entry.build_id)


def _copy(entry: SymCacheEntry, blocks: Iterable[bytes], file: BinaryIO) -> None:
    """Raises SymCacheError if these are not the bytes that were announced."""
    digest, size = hashlib.sha256(), 0
    for block in blocks:
        size += len(block)
        if size > entry.size:
            raise SymCacheError(f"symbols of {entry.build_id}: more than the {entry.size} bytes announced")
        digest.update(block)
        file.write(block)
    if size < entry.size or digest.hexdigest() != entry.sha256.lower():
        raise SymCacheError(f"symbols of {entry.build_id}: {size} bytes came that are not the {entry.size} announced")


def fetch(uri: str, store: str) -> Iterator[bytes]:
    """Reads a file of the symbol store, which is compressed there: at a path, or a URI with one of SCHEMES. Raises
    SymCacheError.

    `store`: the file must be below it ("" for anywhere).
    """
    if store and (not uri.startswith(store + "/") or ".." in uri.split("/")):
        raise SymCacheError(f"{uri[:_SHOWN]} is not in the symbol store {store}")
    scheme, is_uri, _ = uri.partition("://")
    if is_uri and scheme not in SCHEMES:
        raise SymCacheError(f"{uri[:_SHOWN]} has none of the schemes {', '.join(SCHEMES)}")
    try:
        filesystem, path = fs.FileSystem.from_uri(uri) if is_uri else (fs.LocalFileSystem(), uri)
        with filesystem.open_input_stream(path, compression="zstd") as stream:
            while block := stream.read(_BLOCK_BYTES):
                yield bytes(block)
    except (OSError, ValueError) as error:
        raise SymCacheError(f"cannot read {uri[:_SHOWN]}: {str(error)[:_SHOWN]}") from error


def _unzip(compressed: IO[bytes], build_id: str) -> Iterator[bytes]:
    """Yields small blocks, whatever the frame claims to hold. Raises SymCacheError."""
    try:
        with zstandard.ZstdDecompressor().stream_reader(compressed, closefd=False) as reader:
            while block := reader.read(_BLOCK_BYTES):
                yield block
    except zstandard.ZstdError as error:
        raise SymCacheError(f"symbols of {build_id}: not zstd: {error}") from None


def _read_entry(path: Path) -> SymCacheEntry | None:
    try:
        return SymCacheEntry(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _read_entries(folder: Path) -> list[SymCacheEntry]:
    entries = (_read_entry(path) for path in folder.glob("*.json"))
    return [entry for entry in entries if entry]


def _entry_size(build_id: str, entry: SymCacheEntry) -> int:
    return len(build_id) + len(entry.uri) + len(entry.sha256)
