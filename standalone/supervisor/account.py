"""Accounts of this machine."""

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass

_FIRST_PERSON = 1000
"""User IDs below are of the system and of services."""


@dataclass(frozen=True)
class Account:
    """A user of this machine."""

    name: str
    uid: int
    gid: int
    home: str

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Returns the environment of this user's processes: nothing in it leads to a folder of another user."""
        shared = {name: value for name, value in environ.items() if not name.startswith("XDG_") and name != "TMPDIR"}
        return shared | {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


def find_account(name: str) -> Account | None:
    try:
        account = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(account.pw_name, account.pw_uid, account.pw_gid, account.pw_dir)


def others_with_login() -> list[str]:
    """Returns the names of people who may log in here, except the one who runs this process, also by sudo."""
    own = {os.getuid(), int(os.environ.get("SUDO_UID", os.getuid()))}
    return [a.pw_name for a in pwd.getpwall() if a.pw_uid >= _FIRST_PERSON and a.pw_uid not in own and _logs_in(a)]


def _logs_in(account: pwd.struct_passwd) -> bool:
    return os.path.basename(account.pw_shell) not in ("nologin", "false")
