"""The user who can change a file. What a file says about itself (its build ID, its functions, how its stack is unwound)
is believed for the files of that user only, because anybody can write another program's build ID into a file."""

import os
import stat

from icestream.symbols.build_ids import with_code

ROOT = 0
SEVERAL = -1
"""Instead of root, where others can write to root's file."""


def owner_of(status: os.stat_result) -> int:
    """Returns the user ID of the owner, as the host counts; SEVERAL for a file of root that others can write to."""
    by_group = status.st_mode & stat.S_IWGRP and status.st_gid != ROOT
    if status.st_uid == ROOT and (by_group or status.st_mode & stat.S_IWOTH):
        return SEVERAL
    return status.st_uid


def file_key(build_id: str, code: str, owner: int) -> str:
    """Returns what tells files on a host apart: the build ID, the hash of the code, and the owner unless that is root.
    "" if the file has no build ID."""
    key = build_id if not code or build_id.endswith(f"+{code}") else with_code(build_id, code)
    return key if owner == ROOT or not build_id else f"{key}@{owner}"
