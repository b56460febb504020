"""Whether another user can reach what parts need."""

import os
import re
import stat
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from standalone.supervisor.account import Account
from standalone.supervisor.free_port import listener

_CAPABILITIES = {"CAP_CHOWN": 0, "CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7}  # linux/capability.h
_FINE = "fine"


@dataclass(frozen=True)
class Needs:
    """What parts need that run as another user."""

    data: Path
    """The data folder: they must be able to enter it, but not to change or replace it, because root writes there."""
    read: Iterable[Path] = ()
    write: Iterable[Path] = ()
    """Folders outside of it that they write to; missing ones can be made."""
    listen: Iterable[str] = ()
    """HOST:PORT, which are free."""


def why_not(user: Account, needs: Needs) -> str | None:
    """Returns why parts cannot run as `user`, without a full stop; None if they can. Root only.

    A child process of this user tries it, because modes, groups, ACLs and read-only mounts all have a say.
    """
    held = int(re.findall(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())[0], 16)
    if missing := [name for name, number in _CAPABILITIES.items() if not held >> number & 1]:
        return f"icestream was started without {', '.join(missing)}"
    return _ask_as(user, lambda: _problem(user, needs))


def own_code() -> set[Path]:
    """Returns the files of the interpreter and of all modules that this process has loaded, with and without links."""
    modules = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    files = {Path(file).absolute() for file in (*modules, sys.executable) if file and os.path.exists(file)}
    return files | {file.resolve() for file in files}


def _ask_as(user: Account, ask: Callable[[], str | None]) -> str | None:
    """Returns what `ask` returns in a child process that runs as this user."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        answer = ""
        try:
            os.setgroups([])
            os.setresgid(user.gid, user.gid, user.gid)
            os.setresuid(user.uid, user.uid, user.uid)
            answer = ask() or _FINE
        except BaseException as error:
            answer = f"cannot try it as the user {user.name}: {error}"
        finally:
            os.write(writer, answer.encode(errors="replace"))
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as stream:
        answer = stream.read().decode()
    os.waitpid(child, 0)
    return None if answer == _FINE else answer or f"the process that tries it as the user {user.name} was killed"


def _problem(user: Account, needs: Needs) -> str | None:
    read = sorted(needs.read)
    for path in (*read, *needs.write, needs.data / "any"):
        if folder := _closed_folder(path):
            return f"the user {user.name} cannot enter {folder}, on the way to {path.parent}"
    for path in read:
        if not os.access(path, os.R_OK):
            return f"the user {user.name} cannot read {path}"
    for path in needs.write:
        if path.exists() and not os.access(path, os.W_OK | os.X_OK):
            return f"the user {user.name} cannot write to {path} (chown -R {user.name} {path})"
    for folder in (needs.data, *needs.data.parents, *needs.data.resolve().parents):
        if _can_change(folder, user, above=folder != needs.data):
            return f"the user {user.name} can change {folder}, and root writes in {needs.data} (take another --data)"
    for address in needs.listen:
        host, _, port = address.rpartition(":")
        try:
            listener(host.strip("[]"), int(port)).close()
        except PermissionError:
            return f"the user {user.name} cannot listen on {address} (take a port from 1024 on)"
        except OSError:  # taken a moment ago: the part says so
            pass
    return None


def _can_change(folder: Path, user: Account, above: bool) -> bool:
    """Returns whether the user can put something into a folder; `above`: whether it can replace what root has there,
    which the sticky bit of /tmp prevents."""
    status = folder.stat()
    safe = above and status.st_mode & stat.S_ISVTX
    return status.st_uid == user.uid or (os.access(folder, os.W_OK) and not safe)


def _closed_folder(path: Path) -> Path | None:
    """Returns the topmost folder above `path` that this process cannot enter; None if it can enter all that exist."""
    return next((p for p in reversed(path.parents) if os.access(p, os.F_OK) and not os.access(p, os.X_OK)), None)
