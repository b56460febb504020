"""Selects the files whose names `icestream symbols upload` sends, by build ID and kind of names."""

import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from collector.elf import identity
from collector.elf.error import ElfError
from collector.symbols.debug_files import opened
from collector.symbols.file_names import best
from collector.symbols.name_kinds import DYNAMIC, NOTHING
from collector.symbols.symbol_files import open_by_build_id

_EXECUTABLE, _SHARED = 2, 3  # e_type
_KERNEL = 0xFFFF_8000_0000_0000


class UploadError(ValueError):
    """A file without names to upload; the message says why."""


class NotElfError(UploadError):
    """Not an ELF file at all."""


@dataclass(frozen=True)
class Candidate:
    """A file with a build ID, and the best kind of names in it or its debug files (name_kinds.py)."""

    path: Path
    build_id: str
    version: int


def examine(path: Path) -> Candidate:
    """Returns the symbols to upload of a file. Raises UploadError if its names could not be looked up."""
    descriptor = next(opened("/", str(path.absolute())), None)
    if descriptor is None:
        raise UploadError("no such file, or no regular one that can be read")
    try:
        elf = identity.read_file(descriptor)
        head = os.pread(descriptor, 18, 0)
    except ElfError:
        raise NotElfError("not an ELF file") from None
    finally:
        os.close(descriptor)
    if struct.unpack_from("<H", head, 16)[0] not in (_EXECUTABLE, _SHARED):
        raise UploadError("not linked (an object file or a kernel module): upload what was linked of it")
    if elf.load_address >= _KERNEL:
        raise UploadError("a kernel: its names come from the hosts that run it")
    if not elf.build_id:
        raise UploadError("no build ID, so its names could not be found: link with -Wl,--build-id")
    version = max(map(best, open_by_build_id(elf.build_id, None, (), str(path.absolute()))), default=NOTHING)
    return Candidate(path, elf.build_id, version)


def best_of(candidates: Iterable[Candidate]) -> tuple[list[Candidate], list[Candidate]]:
    """Returns the file with the best names of each build ID; and separately those with no other names than the exported
    ones, which every host that runs the file has as well."""
    chosen: dict[str, Candidate] = {}
    for candidate in candidates:
        known = chosen.get(candidate.build_id)
        if known is None or candidate.version > known.version:
            chosen[candidate.build_id] = candidate
    named = [candidate for candidate in chosen.values() if candidate.version > DYNAMIC]
    return named, [candidate for candidate in chosen.values() if candidate.version <= DYNAMIC]


def files_below(folder: Path) -> Iterator[Path]:
    """Yields all regular files below a folder, in order; does not follow links."""
    for root, folders, names in os.walk(folder):
        folders.sort()
        yield from (path for name in sorted(names) if (path := Path(root, name)).is_file() and not path.is_symlink())
