"""Builds SymCaches in a process of its own, with limits on memory and time, so that no file can hurt the collector.

Reads jobs as lines of JSON from standard input, answers each with a line on standard output, and ends with the input.
"""

import hashlib
import json
import os
import resource
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from io import BytesIO
from operator import itemgetter
from pathlib import Path
from typing import Any

from collector.elf import identity
from collector.elf.reader import bytes_reader
from collector.processes.mapped_files import VDSO, MapsEntry, vdso_bytes
from collector.symbols import kallsyms
from collector.symbols.code_ranges import breakpad
from collector.symbols.file_names import Made, NamesError, best, from_text, make
from collector.symbols.functions import functions
from collector.symbols.name_kinds import DEBUG_INFO, SYMBOL_TABLE
from collector.symbols.symbol_files import open_by_build_id
from icestream import atomic_file

MEMORY_BYTES = 1 << 30  # without the mapped files
JOB_CPU_SECONDS = 60
NICE = 10  # a tenth of the share of others: with 19, a busy host's functions would be without names for minutes
MAX_FILES = 16  # that are examined for one build ID


def main() -> int:
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + JOB_CPU_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        print(json.dumps(answer(json.loads(line))), flush=True)
    return 0


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of a SymbolFile.

    `job`: build_id; path, where the file was seen; entries (MapsEntry); more, other paths; store, or without one
    `compressed`, the path of the zstd file to write.
    """
    try:
        names = _kernel(job) or _file(job)
        size = len(names.symcache)
        sha256 = hashlib.sha256(names.symcache).hexdigest()
        fields = {"version": names.version, "load_address": names.load_address, "size": size, "sha256": sha256}
        if job["store"]:
            return fields | {"uri": _store(names.symcache, job["store"], sha256)}
        _compress(names.symcache, job["compressed"])
        return fields
    except (NamesError, kallsyms.KernelSymbolsError, OSError, MemoryError) as error:
        return {"error": str(error) or type(error).__name__}
    except Exception as error:  # symbolic's own errors: the file is damaged
        return {"error": f"the symbols cannot be read: {error}"}


def _kernel(job: dict[str, Any]) -> Made | None:
    """Returns the names of the kernel, a module or the vDSO; None if none of them has the build ID."""
    text = kallsyms.breakpad(job["build_id"])
    if text is not None:  # addresses count from 0
        return from_text(text, SYMBOL_TABLE)
    vdso = vdso_bytes() if job["path"] == VDSO else b""
    if not vdso or (elf := identity.read_bytes(vdso)).build_id != job["build_id"]:
        return None
    return from_text(breakpad(functions(bytes_reader(vdso)), elf.load_address), SYMBOL_TABLE, elf.load_address)


def _file(job: dict[str, Any]) -> Made:
    """Returns the best names in the files of a build ID."""
    reason: Exception = NamesError("the file is not on this host any more")
    with ExitStack() as opened:
        for version, descriptor in _by_quality(job, opened):
            try:
                return make(descriptor, version)
            except Exception as error:  # a damaged file; the next one may be intact
                reason = error
    raise reason


def _by_quality(job: dict[str, Any], opened: ExitStack) -> Iterator[tuple[int, int]]:
    """Yields (kind of names, descriptor), the best first."""
    others: list[tuple[int, int]] = []
    entries = [MapsEntry(*entry) for entry in job["entries"]]
    for descriptor in open_by_build_id(job["build_id"], entries, job["path"], job["more"]):
        version = best(descriptor)
        if version == DEBUG_INFO:
            yield version, descriptor
            version = SYMBOL_TABLE  # in case its debug information is damaged
        if len(others) < MAX_FILES:
            others.append((version, os.dup(descriptor)))
            opened.callback(os.close, others[-1][1])
    yield from sorted(others, key=itemgetter(0), reverse=True)


def _store(symcache: bytes, store: str, sha256: str) -> str:
    """Writes a SymCache to the symbol store under its hash; returns its URI."""
    name = f"{sha256[:2]}/{sha256}.symcache"
    if "://" not in store:
        path = Path(store).absolute() / name
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.parent.chmod(0o755)  # whatever the umask: stream processors may run as another user
        with atomic_file.replacing(path) as file:
            file.write(symcache)
            os.fchmod(file.fileno(), 0o644)
        return str(path)
    from pyarrow import fs

    system, root = fs.FileSystem.from_uri(store)
    system.create_dir(f"{root}/{sha256[:2]}", recursive=True)
    with system.open_output_stream(f"{root}/{name}") as stream:
        shutil.copyfileobj(BytesIO(symcache), stream)
    return f"{store.rstrip('/')}/{name}"


def _compress(symcache: bytes, path: str) -> None:
    import zstandard

    with open(path, "wb") as out:
        zstandard.ZstdCompressor(level=6).copy_stream(BytesIO(symcache), out, size=len(symcache))


if __name__ == "__main__":
    sys.exit(main())
