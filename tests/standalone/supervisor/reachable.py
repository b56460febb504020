"""Runs a program where every user can read this Python and this code, wherever they are: a folder that only root may
enter (such as /root) is replaced by an empty one that holds them, in a mount namespace of the program's own."""

import shlex
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def reachable(command: Sequence[str]) -> list[str]:
    """Returns the command that runs `command` so. Needs root."""
    needed = dict.fromkeys([ROOT, Path(sys.prefix), Path(sys.base_prefix).resolve()])
    closed = {path: folder for path in needed if (folder := _closed(path)) is not None}
    steps = ["set -e", "mount -t tmpfs none /mnt"]
    for number, path in enumerate(closed):
        steps += [f"mkdir /mnt/{number}", f"mount --bind {shlex.quote(str(path))} /mnt/{number}"]
    steps += [f"mount -t tmpfs -o mode=755 none {shlex.quote(str(folder))}" for folder in set(closed.values())]
    for number, path in enumerate(closed):
        steps += [f"mkdir -p {shlex.quote(str(path))}", f"mount --bind /mnt/{number} {shlex.quote(str(path))}"]
    return ["unshare", "--mount", "sh", "-c", "\n".join([*steps, 'exec "$@"']), "sh", *command]


def _closed(path: Path) -> Path | None:
    """Returns the outermost folder above `path` that others may not enter."""
    return next((up for up in reversed(path.parents) if not up.stat().st_mode & stat.S_IXOTH), None)
