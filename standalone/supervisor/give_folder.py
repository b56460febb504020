"""Gives folders that root made to the user that writes to them from now on."""

import contextlib
import os
import stat

from standalone.supervisor.account import Account

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ANY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def owner(data: int, path: str) -> int | None:
    """Returns the user ID of the owner of a folder below the open folder `data`; None if it is missing. Raises
    OSError."""
    try:
        status = os.stat(path, dir_fd=data, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status.st_uid


def give(data: int, path: str, user: Account) -> None:
    """Makes a folder below the open folder `data` if it is missing, and gives it to `user` with all that it holds.

    Folders on the way stay root's, and everybody may enter them. Raises OSError, also where a link is in the way.
    """
    *parents, name = path.split("/")
    with contextlib.ExitStack() as opened:
        for parent in parents:
            data = _open(data, parent)
            opened.callback(os.close, data)
            os.fchmod(data, stat.S_IMODE(os.fstat(data).st_mode) | 0o055)
        folder = _open(data, name)
        opened.callback(os.close, folder)
        _give(folder, user)


def let_enter(data: int, user: Account) -> None:
    """Lets the user's group enter the open folder `data`, unless everybody may. Raises OSError."""
    if not os.fstat(data).st_mode & stat.S_IXOTH:
        let_read(data, ".", user)


def let_read(data: int, name: str, user: Account) -> None:
    """Makes a folder of root in the open folder `data` if it is missing, and lets the user's group read it."""
    folder = _open(data, name)
    try:
        os.fchown(folder, -1, user.gid)
        os.fchmod(folder, stat.S_IMODE(os.fstat(folder).st_mode) | 0o050)
    finally:
        os.close(folder)


def _open(parent: int, name: str) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=parent)
    return os.open(name, _FOLDER, dir_fd=parent)


def _give(folder: int, user: Account) -> None:
    """A folder goes to the user after what it holds. So one that the user owns is finished and is not entered again:
    in it the user may have put anything, such as a hard link to a file of root. In a folder that still belongs to its
    former owner, that owner put everything; what belongs to somebody else is left alone. Each entry is opened first,
    without following links, and then the open file is asked and given: nobody can put another one in its place.
    Links keep their owner, which nobody asks for.
    """
    former = os.fstat(folder).st_uid
    if former == user.uid:
        return
    for name in os.listdir(folder):
        try:
            entry = os.open(name, _ANY, dir_fd=folder)
        except FileNotFoundError:
            continue
        try:
            status = os.fstat(entry)
            if status.st_uid != former:
                continue
            if stat.S_ISDIR(status.st_mode):
                inner = os.open(".", _FOLDER, dir_fd=entry)
                try:
                    _give(inner, user)
                finally:
                    os.close(inner)
            elif stat.S_ISREG(status.st_mode):
                os.chown(f"/proc/self/fd/{entry}", user.uid, user.gid)  # fchown refuses O_PATH
        finally:
            os.close(entry)
    os.fchown(folder, user.uid, user.gid)
