"""Finds the folder in which Docker keeps a container's files, wherever its data is (`data-root`, a snap).

Docker mounts DATA/containers/ID/hostname into the container, as it does with `hosts` and `resolv.conf`. The table of
mounts of a process in the container says where on a file system that file is, and that of process 1 where this file
system is mounted on the host. Format: proc_pid_mountinfo(5).
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

MOUNTS = "/proc/{pid}/mountinfo"
_MOST_BYTES = 1 << 20
_FILES = ("hostname", "hosts", "resolv.conf")
_ESCAPE = re.compile(r"\\([0-7]{3})")


class _Mount(NamedTuple):
    device: str
    root: str
    """The folder or file of the file system that is mounted."""
    point: str


def docker_folder(pid: int, container_id: str, host_pid: int = 1) -> str | None:
    """Returns the container's folder, as an absolute path of the host; None if the mounts of the process do not tell.

    The process may be anybody's: whoever reads the folder checks who owns its files.
    """
    for mount in _mounts(pid):
        folder, _, name = mount.root.rpartition("/")
        if name in _FILES and mount.point == f"/etc/{name}" and folder.endswith(f"/containers/{container_id}"):
            return _on_host(mount.device, folder, host_pid)
    return None


def _on_host(device: str, folder: str, host_pid: int) -> str | None:
    roots = [
        mount
        for mount in _mounts(host_pid)
        if mount.device == device and f"{folder}/".startswith(f"{mount.root.rstrip('/')}/")
    ]
    if not roots:
        return None
    mount = max(roots, key=lambda mount: len(mount.root))
    return mount.point.rstrip("/") + folder[len(mount.root.rstrip("/")) :]


def _mounts(pid: int) -> Iterator[_Mount]:
    """Yields nothing if the process is gone."""
    try:
        with open(MOUNTS.format(pid=pid), "rb") as file:
            lines = file.read(_MOST_BYTES).decode("utf-8", "surrogateescape").split("\n")
    except OSError:
        return
    for line in lines:
        fields = line.split(" ")
        if len(fields) > 5:
            yield _Mount(fields[2], _text(fields[3]), _text(fields[4]))


def _text(field: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), field)
