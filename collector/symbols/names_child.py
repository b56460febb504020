"""Reads the names in files of strangers, in a process of its own (collector/guest/confined_jobs.py)."""

import os
import sys

from collector.elf import identity
from collector.elf.reader import bytes_reader
from collector.guest.confined_jobs import MAX_MESSAGE_BYTES, ChildLimits, serve
from collector.symbols.file_names import best, from_text, make
from collector.symbols.functions import functions
from collector.symbols.name_kinds import SYMBOL_TABLE
from collector.symbols.names_jobs import (
    BEST,
    BUILT,
    ERROR,
    KIND,
    MAKE,
    MAX_SYMCACHE_BYTES,
    TEXT,
    BuiltSymCache,
    NamesError,
)
from collector.symbols.symcache_functions import of_functions

MEMORY_BYTES = 1 << 30  # without the mapped files
JOB_CPU_SECONDS = 60
IDLE_S = 600.0  # the process that asks ends long before
NICE = 10  # a tenth of the share of others: with 19, a busy host's functions would be without names for minutes


def main() -> int:
    return serve(answer, ChildLimits(MEMORY_BYTES, MAX_SYMCACHE_BYTES, JOB_CPU_SECONDS, IDLE_S, NICE))


def answer(job: bytes, descriptors: list[int]) -> bytes:
    """Does a job (names_jobs.py)."""
    source, target = descriptors
    wanted, argument = job[:1], job[1:]
    try:
        if wanted == BEST:
            return wanted + KIND.pack(best(source))
        return wanted + _write(_make(wanted, argument, source), target)
    except (NamesError, OSError, MemoryError) as error:
        reason = str(error) or type(error).__name__
    except Exception as error:  # symbolic's own errors: the file is damaged
        reason = f"the symbols cannot be read: {error}"
    return (ERROR + reason.encode("utf-8", "replace"))[:MAX_MESSAGE_BYTES]


def _make(wanted: bytes, argument: bytes, source: int) -> BuiltSymCache:
    if wanted == MAKE:
        return make(source, *KIND.unpack(argument))
    with open(source, "rb", closefd=False) as file:
        data = file.read()
    if wanted == TEXT:
        return from_text(data, *KIND.unpack(argument))
    load_address = identity.read_bytes(data).load_address
    symcache = of_functions(functions(bytes_reader(data)), load_address)
    return BuiltSymCache(SYMBOL_TABLE, load_address, bytes(symcache))


def _write(names: BuiltSymCache, target: int) -> bytes:
    with open(target, "wb", closefd=False) as file:
        file.write(names.symcache)
    return BUILT.pack(names.version, names.load_address, os.fstat(target).st_size)


if __name__ == "__main__":
    sys.exit(main())
