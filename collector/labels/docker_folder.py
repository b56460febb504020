"""Finds the folder in which Docker keeps a container's files, wherever its data is (`data-root`, a snap).

Docker mounts DATA/containers/ID/hostname into the container, as it does with `hosts` and `resolv.conf`; ID is another
one where containers share a network. The table of mounts of a process in the container says where on a file system
that file is, and that of process 1 where this file system is mounted on the host.
"""

import os
import re

from collector.processes.mounts import mounts

PROC = "/proc"
_CONTAINERS = b"/containers/"
_FOLDER = re.compile(r"(/.*/containers)/[0-9a-f]{64}/(hostname|hosts|resolv\.conf)", re.DOTALL)


def docker_folder(pid: int, container_id: str, host_pid: int = 1) -> str | None:
    """Returns the container's folder, as an absolute path of the host; None if the mounts of the process do not tell.

    In a user namespace of their own, all users can mount what they like. So only the mounts of processes count that are
    in the host's.
    """
    if not _same_users(pid, host_pid):
        return None
    for mount in mounts(pid, _CONTAINERS, PROC):
        match = _FOLDER.fullmatch(mount.root)
        if match and mount.point == f"/etc/{match[2]}":
            return _on_host(mount.device, f"{match[1]}/{container_id}", host_pid)
    return None


def _same_users(pid: int, host_pid: int) -> bool:
    own = f"{PROC}/{pid}/ns/user"
    try:
        try:
            return os.path.samefile(own, f"{PROC}/{host_pid}/ns/user")
        except PermissionError:  # some hosts let nobody look at process 1
            return os.path.samefile(own, f"{PROC}/self/ns/user")
    except OSError:
        return False


def _on_host(device: str, folder: str, host_pid: int) -> str | None:
    roots = [
        mount
        for mount in mounts(host_pid, proc=PROC)
        if mount.device == device and f"{folder}/".startswith(f"{mount.root.rstrip('/')}/")
    ]
    if not roots:
        return None
    mount = max(roots, key=lambda mount: len(mount.root))
    return mount.point.rstrip("/") + folder[len(mount.root.rstrip("/")) :]
