"""Keeps the kernel's unwinding tables and mappings up to date, so that the program can walk the processes' stacks.

A thread loads a file's table when a walk meets the file for the first time: from the cache, or by building it. Until
then walks end at that file, and the stack says why.
"""

import contextlib
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from collector import metrics
from collector.bpf.program import ProfileProgram, image_of
from collector.elf.error import ElfTooLarge
from collector.processes.mappings import MappedRange
from collector.processes.patience import Patiently, at_once
from collector.processes.process import Process, user_of
from collector.runtimes.processes import NONE_FOUND, Found
from collector.unwind.kernel.chunk_loader import ChunkLoader
from collector.unwind.kernel.extents import Extents
from collector.unwind.kernel.fair_share import file_to_evict, users_of_files
from collector.unwind.kernel.files import UnwindFiles
from collector.unwind.kernel.installed import Installed
from collector.unwind.kernel.mapping_row import Place, generated_code, mapping_row
from collector.unwind.kernel.maps import (
    MAPPING,
    MAX_MAPPINGS,
    UNKNOWN_CODE,
    UNREQUESTED_CODE,
    UnwindMaps,
)
from collector.unwind.tables.attempts import LOOK_S, Attempts
from collector.unwind.tables.cache import TableCache
from collector.unwind.tables.table import UnwindTable
from collector.unwind.tables.table_queue import TableQueue
from collector.unwind.tables.vdso import vdso_table

log = logging.getLogger(__name__)

MAX_PROCESSES = 1 << 14
_PROCESS_AGAIN_S = 5.0  # until a process without room is tried again
_MOST_REFUSED = 20_000  # 2 MB: a process ID and a time each


class Unwinding:
    """`changed`, `ended` and `load_chunk` may be called on any thread. `open_file(file_key)` gives a descriptor of such
    a file, or None; it is FileCache.open, and `patiently` FileCache.patiently."""

    def __init__(
        self,
        program: ProfileProgram,
        cache: TableCache,
        open_file: Callable[[str], int | None],
        patiently: Patiently = at_once,
    ) -> None:
        self._cache, self._open_file, self._patiently = cache, open_file, patiently
        self._maps = UnwindMaps(program.map_fd, program.row_pages)
        self._files = UnwindFiles(self._maps)
        self._mappings = Extents(MAX_MAPPINGS)
        self._installed: dict[int, Installed] = {}
        self._lock = threading.Lock()
        self._chunks = ChunkLoader(self._files, self._lock)
        self._wanted = TableQueue()
        self._large = TableQueue()  # files that take long, so that they delay no others
        self._attempts = Attempts()
        self._refused: dict[int, float] = {}  # process without room -> when it may be tried again
        self._vdso = vdso_table()
        self._threads = [
            threading.Thread(target=self._load, args=args, name="unwind-tables", daemon=True)
            for args in ((self._wanted, self._load_small), (self._large, self._load_large))
        ]

    def start(self) -> None:
        """Starts the threads."""
        self._chunks.start()
        for thread in self._threads:
            thread.start()

    def changed(self, process: Process, ranges: list[MappedRange], runtimes: Found = NONE_FOUND) -> None:
        """Sets the executable mappings of a process, sorted, and its runtimes."""
        with self._lock:
            self._install(process, ranges, runtimes)

    def lacks(self, pid: int, monotonic_ns: int) -> bool:
        """Whether a process that a walk did not find at that time should be set: not if that was done since, nor if
        there was no room for it a short time ago."""
        known = self._installed.get(pid)
        done = known is not None and known.is_complete and known.since_monotonic_ns > monotonic_ns
        return not done and self._refused.get(pid, 0.0) <= time.monotonic()

    def ended(self, pid: int) -> None:
        with self._lock:
            self._refused.pop(pid, None)
            self._maps.forget_process(pid)
            self._forget(pid)

    def load_table(self, pid: int, start: int) -> None:
        """The table of the mapping that starts there, which a walk asked for: it will be there soon."""
        with self._lock:
            known = self._installed.get(pid)
            for mapped_range in known.ranges if known else ():
                if mapped_range.start == start and self._may_have_table(mapped_range):
                    self._attempts.begin(mapped_range.file_key)
                    self._wanted.put(mapped_range.file_key, mapped_range.end - mapped_range.start)

    def load_chunk(self, chunk: int) -> None:
        """The rows of a chunk, which a walk asked for: they will be there soon."""
        self._chunks.request(chunk)

    def ready(self, pid: int) -> bool:
        """Whether the process is known and no table that it needs is being loaded."""
        with self._lock:
            known = self._installed.get(pid)
            return known is not None and not any(map(self._attempts.loading, known.file_keys))

    def close(self) -> None:
        self._cache.close()
        self._chunks.close()
        self._wanted.end()
        self._large.end()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        with self._lock:
            self._maps.close()

    def _install(self, process: Process, ranges: list[MappedRange], runtimes: Found) -> None:
        before, since_monotonic_ns = self._installed.get(process.pid), time.monotonic_ns()
        known = before if before is not None and before.process == process and before.is_complete else None
        try:
            image = known.image if known is not None else image_of(process.pid)
        except OSError:  # it ended
            return
        first = self._mappings.allocate(len(ranges))
        if first is None or (len(self._installed) >= MAX_PROCESSES and before is None):
            if first is not None:
                self._mappings.free(first, len(ranges))
            self._refuse(process.pid)
            return
        self._refused.pop(process.pid, None)
        file_keys = {mapped_range.file_key for mapped_range in ranges if mapped_range.file_key}
        places = {file_key: self._place(file_key) for file_key in (*file_keys, "")}  # of each file once: it is faster
        generated = generated_code(runtimes.unwalkable)
        rows = [mapping_row(each, places[each.file_key], generated) for each in ranges]
        self._maps.mappings[first : first + len(ranges)] = np.array(rows, MAPPING)
        self._forget(process.pid)
        self._installed[process.pid] = Installed(process, ranges, first, file_keys, image, since_monotonic_ns)
        for file_key in file_keys:
            file = self._files.get(file_key)
            if file is not None:
                file.users += 1
        try:
            self._maps.set_process(process.pid, image, first, len(ranges), runtimes.kinds)
        except OSError as error:
            self._maps.forget_process(process.pid)  # what it had before belongs to nobody now
            metrics.UNWIND_REFUSED.labels("process").inc()
            log.debug("process %d cannot be added: %s", process.pid, error)
        metrics.UNWIND_PROCESSES.set(len(self._installed))

    def _refuse(self, pid: int) -> None:
        metrics.UNWIND_REFUSED.labels("process").inc()
        if len(self._refused) > _MOST_REFUSED:
            self._refused.clear()
        self._refused[pid] = time.monotonic() + _PROCESS_AGAIN_S

    def _forget(self, pid: int) -> None:
        known = self._installed.pop(pid, None)
        if known is None:
            return
        self._mappings.free(known.first, len(known.ranges))
        for file_key in known.file_keys:
            if file := self._files.get(file_key):
                file.users -= 1

    def _place(self, file_key: str) -> Place:
        file = self._files.get(file_key) if file_key else None
        if file is not None:
            return Place(file.base, file.chunks << 32 | file.first_chunk)
        may_begin = bool(file_key) and self._attempts.may_begin(file_key)
        return Place(None, UNREQUESTED_CODE if may_begin else UNKNOWN_CODE)

    def _may_have_table(self, mapped_range: MappedRange) -> bool:
        file_key = mapped_range.file_key
        return bool(file_key) and self._files.get(file_key) is None and self._attempts.may_begin(file_key)

    def _load(self, wanted: TableQueue, load: Callable[[str], None]) -> None:
        """The threads that get tables."""
        while True:
            with contextlib.suppress(queue.Empty):
                if (file_key := wanted.pop(LOOK_S)) is None:
                    return
                try:
                    load(file_key)
                except Exception:
                    log.exception("no unwinding table for %s", file_key)
                    with self._lock:
                        self._attempts.put_off(file_key)
            self._try_again()

    def _try_again(self) -> None:
        """From now on, walks in processes that run already ask again for files that were put off a while ago."""
        with self._lock:
            for file_key in self._attempts.due():
                for known in self._installed.values():
                    if file_key in known.file_keys:
                        self._write_again(known, file_key)

    def _load_small(self, file_key: str) -> None:
        try:
            if file_key in self._vdso:
                table = self._vdso[file_key]
            else:
                table = self._patiently(
                    file_key, lambda: self._cache.get_small(file_key, lambda: self._open_file(file_key)), longer=True
                )
        except ElfTooLarge:
            self._large.put(file_key, 0)
        except TimeoutError:
            self._add(file_key, None)
        else:
            self._add(file_key, table)

    def _load_large(self, file_key: str) -> None:
        def close(descriptor: int) -> None:
            with contextlib.suppress(TimeoutError):
                self._patiently(file_key, partial(os.close, descriptor), longer=True)

        self._add(file_key, self._cache.get(file_key, lambda: self._open_file(file_key), close))

    def _add(self, file_key: str, table: UnwindTable | None) -> None:
        """Adds the table of a file to the maps; without a table the file is not tried again for a while."""
        with self._lock:
            self._add_locked(file_key, table)
            metrics.UNWIND_FILES.set(len(self._files))
            metrics.UNWIND_ROWS.set(self._files.rows)

    def _add_locked(self, file_key: str, table: UnwindTable | None) -> None:
        if self._files.get(file_key) is not None:
            self._attempts.succeeded(file_key)
            return
        file = None
        if table is not None and self._files.may_fit(table):
            file = self._files.add(file_key, table)
            while file is None and self._evict_for(file_key, self._files.share_of_table(table)):
                file = self._files.add(file_key, table)
        if file is None:
            metrics.UNWIND_REFUSED.labels("file").inc()
            self._attempts.put_off(file_key)
        else:
            self._attempts.succeeded(file_key)
        for known in self._installed.values():
            if file_key in known.file_keys:
                self._write_again(known, file_key)
                if file is not None:
                    file.users += 1

    def _evict_for(self, file_key: str, share: float) -> bool:
        """Evicts a file of another user who takes more. Returns whether there was one."""
        for pid, known in self._installed.items():
            if known.user is None:
                known.user = user_of(pid)
        users = users_of_files((known.user, known.file_keys) for known in self._installed.values())
        evicted = file_to_evict(users, self._files.share_of, file_key, share)
        if evicted is None:
            return False
        self._attempts.put_off(evicted)
        for known in self._installed.values():
            self._write_unknown(known, evicted)
        self._files.evict(evicted)
        return True

    def _write_unknown(self, known: Installed, file_key: str) -> None:
        """Says in the maps that there is no table of a file."""
        for i, mapped_range in enumerate(known.ranges, known.first):
            if mapped_range.file_key == file_key:
                self._maps.mappings["table"][i] = UNKNOWN_CODE

    def _write_again(self, known: Installed, file_key: str) -> None:
        """Updates the mappings of a file in the maps."""
        for i, mapped_range in enumerate(known.ranges, known.first):
            if mapped_range.file_key == file_key:
                _, _, bias, table = mapping_row(mapped_range, self._place(file_key))
                self._maps.mappings["bias"][i] = bias
                self._maps.mappings["table"][i] = table  # last: until then the program sees no table
