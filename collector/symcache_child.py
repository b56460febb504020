"""Builds SymCaches: a process of its own, niced and bounded in memory and time, so that no file can hurt the collector.

Reads jobs as lines of JSON from standard input, answers each with a line on standard output, ends at end of input.
"""

import hashlib
import json
import os
import resource
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from symbolic.debuginfo import Archive, Object

from collector import elf, kallsyms
from collector.mapped_files import VDSO, Place, vdso_bytes
from collector.symbol_files import open_by_build_id

MEMORY_BYTES = 1 << 30  # besides the files, which are mapped
JOB_CPU_SECONDS = 60
_EMPTY_BYTES = 80  # of a SymCache's header
SYMBOL_TABLE, DEBUG_INFO = 1, 2
"""Versions of names: those with lines are better."""


class JobError(RuntimeError):
    """This host cannot provide these symbols, and why."""


def main() -> int:
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + JOB_CPU_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        print(json.dumps(answer(json.loads(line))), flush=True)
    return 0


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """The fields of a SymbolFile. `job`: build_id; path, where it was seen; places; store, or else `compressed`, the
    path of the zstd file to write."""
    try:
        with tempfile.TemporaryFile() as symcache:
            version, load_address = _build(job, symcache)
            size = symcache.tell()
            if size <= _EMPTY_BYTES:
                raise JobError("the file names no function: it is stripped")
            symcache.seek(0)
            sha256 = hashlib.file_digest(symcache, "sha256").hexdigest()
            symcache.seek(0)
            fields = {"version": version, "load_address": load_address, "size": size, "sha256": sha256}
            if job["store"]:
                return fields | {"uri": _store(symcache, job["store"], sha256)}
            _compress(symcache, size, job["compressed"])
            return fields
    except (JobError, kallsyms.KernelSymbolsError, OSError, MemoryError) as error:
        return {"error": str(error) or type(error).__name__}
    except Exception as error:  # symbolic's own errors: the file is not what it says
        return {"error": f"the symbols cannot be read: {error}"}


def _build(job: dict[str, Any], out: Any) -> tuple[int, int]:
    """Writes the SymCache; returns (version, load address)."""
    build_id = job["build_id"]
    text = kallsyms.breakpad(build_id)
    if text is None and job["path"] == VDSO:
        vdso = vdso_bytes()
        text = vdso if vdso and elf.read_bytes(vdso).build_id == build_id else None
    if text is not None:  # kernel, module, vDSO: addresses count from 0
        archive = Archive.from_bytes(text)
        return _dump(_only_object(archive), out), 0
    best: tuple[int, int] | None = None
    places = [Place(*place) for place in job["places"]]
    for descriptor in open_by_build_id(build_id, places, job["path"]):
        found = _only_object(Archive.open(f"/proc/self/fd/{descriptor}"))
        if best is None or "debug" in found.features:
            out.seek(0)
            out.truncate()
            best = _dump(found, out), _load_address(descriptor)
        if best[0] == DEBUG_INFO:
            break
    if best is None:
        raise JobError("the file is not on this host any more")
    return best


def _dump(found: Object, out: Any) -> int:
    symcache: Any = found.make_symcache()
    symcache.dump_into(out)
    return DEBUG_INFO if "debug" in found.features else SYMBOL_TABLE


def _only_object(archive: Archive) -> Object:
    found = next(archive.iter_objects(), None)
    if found is None:
        raise JobError("the file holds no object with symbols")
    if not found.features & {"debug", "symtab"}:
        raise JobError("the file has no symbol table")
    return found


def _load_address(descriptor: int) -> int:
    """What symbolic counts addresses from: the first load segment of the file."""
    return elf.read_file(descriptor).load_address


def _store(symcache: Any, store: str, sha256: str) -> str:
    """Puts it into the symbol store under its hash, at once or not at all; returns its URI."""
    name = f"{sha256[:2]}/{sha256}.symcache"
    if "://" not in store:
        path = Path(store).absolute() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as part:
            shutil.copyfileobj(symcache, part)
            os.fchmod(part.fileno(), 0o644)
        os.replace(part.name, path)
        return str(path)
    from pyarrow import fs

    system, root = fs.FileSystem.from_uri(store)
    system.create_dir(f"{root}/{sha256[:2]}", recursive=True)
    with system.open_output_stream(f"{root}/{name}") as stream:
        shutil.copyfileobj(symcache, stream)
    return f"{store.rstrip('/')}/{name}"


def _compress(symcache: Any, size: int, path: str) -> None:
    import zstandard

    with open(path, "wb") as out:
        zstandard.ZstdCompressor(level=6).copy_stream(symcache, out, size=size)


if __name__ == "__main__":
    sys.exit(main())
