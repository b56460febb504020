"""Which user the parts run as that need no rights, when root starts `icestream up`: all but the collector."""

import logging
import os
import pwd
import stat
import subprocess
import sys
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from standalone.supervisor.child_process import Rights

_FIRST, _LAST = 61184, 65519  # systemd gives IDs of this range to services without an account (DynamicUser)
_TIMEOUT_S = 60.0
_PROBE = """
import os, sys
import icestream.cli
for path in sys.argv[1:]:
    there = path
    while not os.path.lexists(there) and os.path.dirname(there) != there:
        there = os.path.dirname(there)
    if not os.access(there, os.W_OK | os.X_OK):
        sys.exit(f"it cannot write to {there}")
"""

log = logging.getLogger(__name__)


class RightsError(Exception):
    """The user that was asked for cannot run icestream; the message says why."""


@dataclass(frozen=True)
class Folders:
    """Folders of the data folder `data`: `own` are those of the parts, `collectors` those that the collector writes to.
    `others` are folders elsewhere that the parts write to."""

    data: Path
    own: Sequence[Path]
    collectors: Sequence[Path]
    others: Sequence[Path] = ()


def prepare(user: str, folders: Folders) -> Rights | None:
    """Decides as whom the parts run, and gives them their folders; None if this process is not root: nothing changes.

    `user` is a name or a number, or "": then it is the owner of the data folder. If root owns it, it is an ID that
    belongs to nobody else. If that user cannot read the code or write to a folder, the parts run as root without
    capabilities. Raises RightsError if `user` cannot, and OSError.
    """
    if os.geteuid() != 0:
        return None
    rights = _named(user) if user else _default(folders.data)
    made = _make(folders, rights)
    if rights.user and (reason := _hindrance(rights, [*folders.own, *folders.others])):
        if user:
            raise RightsError(f"user {user} cannot run icestream: {reason}")
        log.warning("all parts run as root, but without capabilities: user %d cannot run them: %s", rights.user, reason)
        rights = Rights(0, 0)
        _make(folders, rights, made)
    elif rights.user:
        log.info("all parts but the collector run as user %s", user or rights.user)
    return rights


def _named(user: str) -> Rights:
    try:
        account = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    except (KeyError, OverflowError):
        if user.isdecimal() and int(user) < 2**32 - 1:
            return Rights(int(user), int(user))
        raise RightsError(f"there is no user {user}") from None
    return Rights(account.pw_uid, account.pw_gid)


def _default(data: Path) -> Rights:
    owner = data.stat()
    if owner.st_uid == 0:
        return _nobodys(str(data))
    try:
        return Rights(owner.st_uid, pwd.getpwuid(owner.st_uid).pw_gid)
    except KeyError:
        return Rights(owner.st_uid, owner.st_gid)


def _nobodys(text: str) -> Rights:
    """Returns an ID without an account, always the same for a text."""
    count = _LAST - _FIRST + 1
    start = zlib.crc32(text.encode())
    taken = {account.pw_uid for account in pwd.getpwall()}
    number = next(n for i in range(count) if (n := _FIRST + (start + i) % count) not in taken)
    return Rights(number, number)


def _hindrance(rights: Rights, folders: Iterable[Path]) -> str:
    """Returns why that user cannot run the parts; "" if it can."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE, *map(str, folders)], capture_output=True, timeout=_TIMEOUT_S, check=False,
            user=rights.user, group=rights.group, extra_groups=[],
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return "" if done.returncode == 0 else (lines[-1] if lines else f"exit code {done.returncode}")


def _make(folders: Folders, rights: Rights, made: Sequence[Path] = ()) -> list[Path]:
    """Makes the folders, and gives the parts' own ones to their user: those that it makes and those in `made`, and the
    others with what is in them. Returns those that it made."""
    trusted = _is_roots(folders.data)
    new = [folder for folder in folders.collectors if _made(folder)]
    for folder in folders.own:
        for parent in reversed([p for p in folder.parents if p.is_relative_to(folders.data)][:-1]):
            _made(parent)
        if _made(folder):
            new.append(folder)
        if folder in new or folder in made:
            os.chown(folder, rights.user, rights.group, follow_symlinks=False)
        elif trusted:
            _give(folder, rights)
    mode = stat.S_IMODE(folders.data.stat().st_mode)
    if trusted and rights.user and not mode & stat.S_IXOTH:
        os.chown(folders.data, -1, rights.group)
        folders.data.chmod(mode | stat.S_IXGRP)
    return new


def _is_roots(folder: Path) -> bool:
    """Whether only root can put something there, or something else in its place: what is there is no trap then."""
    for path in (folder, *folder.parents):
        at = path.stat(follow_symlinks=False)
        shared = at.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not at.st_mode & stat.S_ISVTX
        if at.st_uid != 0 or shared or not stat.S_ISDIR(at.st_mode):
            return False
    return True


def _made(folder: Path) -> bool:
    """Makes a folder that all may read, whatever the umask; returns False if it is there."""
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    folder.chmod(0o755)
    return True


def _give(folder: Path, rights: Rights) -> None:
    """Gives a folder to another user, with what its owner has in it, and what root has put there since (as a replay
    does while icestream does not run)."""
    before = folder.stat(follow_symlinks=False)
    if not stat.S_ISDIR(before.st_mode):
        return
    for _, names, files, descriptor in os.fwalk(folder, topdown=False, follow_symlinks=False):
        for name in [*names, *files]:
            at = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            # A second link to a file of root may be a user's, to get that file.
            unshared = before.st_uid == 0 or stat.S_ISDIR(at.st_mode) or at.st_nlink == 1
            if at.st_uid != rights.user and at.st_uid in (0, before.st_uid) and unshared:
                os.chown(name, rights.user, rights.group, dir_fd=descriptor, follow_symlinks=False)
    if before.st_uid != rights.user:
        os.chown(folder, rights.user, rights.group, follow_symlinks=False)
