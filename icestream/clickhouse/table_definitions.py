"""Looks after the files of the embedded ClickHouse that it needs to open: one with the definition of each table.

On a full disk, the engine (chDB 26.9) writes an empty file, or half of one, in place of a good one, and reports no
error. It does not open with such a file again. So before each change of tables, the definitions are kept beside the
database, as further names (hard links) of the same files: the engine never writes to a file that it has, but replaces
it. After a change, and before the engine opens, damaged files are put back. That needs no space.
"""

import contextlib
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)

_KEPT = "kept_definitions"


def keep(folder: Path) -> None:
    """Keeps the definitions of all tables as they are now. Raises OSError."""
    kept = folder / _KEPT
    kept.mkdir(exist_ok=True)
    now = set()
    for path in _definitions(folder):
        copy = _copy(folder, path)
        now.add(copy)
        with contextlib.suppress(FileNotFoundError):  # a table that is just being dropped
            if not (copy.exists() and copy.samefile(path)) and _is_whole(path):
                copy.parent.mkdir(exist_ok=True)
                _put(path, copy)
    for copy in set(kept.glob("*/*.sql")) - now:
        copy.unlink()


def put_back(folder: Path) -> list[str]:
    """Puts back what was kept of each damaged definition, and returns the names of their tables.

    The definition of a table that was just being made is removed, as is the file of a deletion that was just being
    noted: neither has taken effect. Raises OSError.
    """
    damaged = [path for path in _definitions(folder) if not _is_whole(path)]
    for path in damaged:
        copy = _copy(folder, path)
        if copy.exists():
            _put(copy, path)
            log.warning("the disk was full when table %s was changed: put its definition of before back", path.stem)
        elif (folder / _KEPT).exists():
            path.unlink()
            log.warning("the disk was full when table %s was made: removed it", path.stem)
        else:
            log.error("the definition of table %s is damaged, and nothing was kept of it: %s", path.stem, path)
    for path in folder.glob("store/*/*/mutation_*.txt"):
        if not _is_whole(path):
            path.unlink()
            log.warning("the disk was full when rows were deleted: removed %s", path)
    return [path.stem for path in damaged]


def _definitions(folder: Path) -> Iterator[Path]:
    return folder.glob("store/*/*/*.sql")


def _copy(folder: Path, path: Path) -> Path:
    return folder / _KEPT / path.parent.name / path.name


def _is_whole(path: Path) -> bool:
    """Whether it ends as the engine ends what it writes; also of a file that has just been removed."""
    try:
        return path.read_bytes()[-1:] == b"\n"
    except FileNotFoundError:
        return True


def _put(source: Path, target: Path) -> None:
    """Makes `target` another name of the file `source`; where the file system has no hard links, a copy of it."""
    new = target.with_name(f"{target.name}.tmp")
    new.unlink(missing_ok=True)
    try:
        os.link(source, new)
    except OSError:
        shutil.copyfile(source, new)
    new.replace(target)
