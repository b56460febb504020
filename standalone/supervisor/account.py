"""Accounts of this machine."""

import pwd
from collections.abc import Mapping
from dataclasses import dataclass


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
