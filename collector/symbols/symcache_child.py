"""Makes SymCaches in a process of its own: opens the files, lets a process without rights read the names in them
(names_child.py), and stores what that one writes. It reads no more of a file than what identifies it.

Reads jobs as lines of JSON from standard input, answers each with a line on standard output, and ends with the input.
Its argument is the descriptor of the socket to the other process.
"""

import hashlib
import json
import mmap
import os
import resource
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from operator import itemgetter
from pathlib import Path
from typing import Any

from collector.elf import identity
from collector.elf.error import ElfError
from collector.processes.mapped_files import VDSO, MapsEntry, vdso_bytes
from collector.symbols import kallsyms
from collector.symbols.name_kinds import DEBUG_INFO, SYMBOL_TABLE
from collector.symbols.names_jobs import BuiltSymCache, NamesError
from collector.symbols.names_worker import NamesWorker
from collector.symbols.symbol_files import open_by_build_id
from icestream.files import atomic_file

MEMORY_BYTES = 1 << 30
JOB_CPU_SECONDS = 60
NICE = 10  # as of the other process
MAX_FILES = 16  # that are examined for one build ID
_CHUNK = 1 << 20


def main() -> int:
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    worker = NamesWorker(socket.socket(fileno=int(sys.argv[1])))
    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + JOB_CPU_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        print(json.dumps(answer(json.loads(line), worker)), flush=True)
    return 0


def answer(job: dict[str, Any], worker: NamesWorker) -> dict[str, Any]:
    """Returns the fields of a SymbolFile. Raises WorkerError if the other process did not survive the job.

    `job`: build_id; owner, path (VDSO for that one), entries (MapsEntry) and more, see open_by_build_id; store, or
    without one `compressed`, the path of the zstd file to write.
    """
    try:
        names = _kernel(job, worker) or _file(job, worker)
        size = len(names.symcache)
        sha256 = hashlib.sha256(names.symcache).hexdigest()
        fields = {"version": names.version, "load_address": names.load_address, "size": size, "sha256": sha256}
        if job["store"]:
            return fields | {"uri": _store(names.symcache, job["store"], sha256)}
        with open(job["compressed"], "wb") as file:
            file.writelines(_compressed(names.symcache))
        return fields
    except (NamesError, ElfError, kallsyms.KernelSymbolsError, OSError, MemoryError) as error:
        return {"error": str(error) or type(error).__name__}


def _kernel(job: dict[str, Any], worker: NamesWorker) -> BuiltSymCache | None:
    """Returns the names of the kernel, a module or the vDSO; None if none of them has the build ID."""
    text = kallsyms.breakpad(job["build_id"])
    if text is not None:  # addresses count from 0
        return worker.from_text(text, SYMBOL_TABLE)
    vdso = vdso_bytes() if job["path"] == VDSO else b""
    if not vdso or identity.read_bytes(vdso).build_id != job["build_id"]:
        return None
    return worker.vdso(vdso)


def _file(job: dict[str, Any], worker: NamesWorker) -> BuiltSymCache:
    """Returns the best names in the files of a build ID."""
    reason = NamesError("the file is not on this host any more")
    with ExitStack() as opened:
        for version, descriptor in _by_quality(job, opened, worker):
            try:
                return worker.make(descriptor, version)
            except NamesError as error:  # a damaged file; the next one may be intact
                reason = error
    raise reason


def _by_quality(job: dict[str, Any], opened: ExitStack, worker: NamesWorker) -> Iterator[tuple[int, int]]:
    """Yields (kind of names, descriptor), the best first."""
    others: list[tuple[int, int]] = []
    entries = [MapsEntry(*entry) for entry in job["entries"]]
    for descriptor in open_by_build_id(job["build_id"], job["owner"], entries, job["path"], job["more"]):
        version = worker.best(descriptor)
        if version == DEBUG_INFO:
            yield version, descriptor
            version = SYMBOL_TABLE  # in case its debug information is damaged
        if len(others) < MAX_FILES:
            others.append((version, os.dup(descriptor)))
            opened.callback(os.close, others[-1][1])
    yield from sorted(others, key=itemgetter(0), reverse=True)


def _store(symcache: bytes | mmap.mmap, store: str, sha256: str) -> str:
    """Writes a SymCache to the symbol store, compressed, under its hash; returns its URI."""
    name = f"{sha256[:2]}/{sha256}.symcache.zst"
    if "://" not in store:
        path = Path(store).absolute() / name
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.parent.chmod(0o755)  # whatever the umask: stream processors may run as another user
        with atomic_file.replacing(path) as file:
            file.writelines(_compressed(symcache))
            os.fchmod(file.fileno(), 0o644)
        return str(path)
    from pyarrow import fs

    system, root = fs.FileSystem.from_uri(store)
    system.create_dir(f"{root}/{sha256[:2]}", recursive=True)
    with system.open_output_stream(f"{root}/{name}", compression="zstd") as stream:
        stream.write(symcache)
    return f"{store.rstrip('/')}/{name}"


def _compressed(symcache: bytes | mmap.mmap) -> Iterator[bytes]:
    import zstandard

    compressor = zstandard.ZstdCompressor(level=6).compressobj(size=len(symcache))
    with memoryview(symcache) as view:
        for start in range(0, len(view), _CHUNK):
            yield compressor.compress(view[start : start + _CHUNK])
    yield compressor.flush()


if __name__ == "__main__":
    sys.exit(main())
