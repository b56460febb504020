"""Which user runs the parts that need no root, and what that user is given."""

import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from icestream.settings import variable
from standalone.settings import UpSettings
from standalone.supervisor.account import Account, find_account
from standalone.supervisor.give_folder import give, let_enter, let_read, owner
from standalone.supervisor.local_kafka import CONFIGURATION, JARS, why_unavailable
from standalone.supervisor.reach import Needs, own_code, why_not

DEFAULT = ("icestream", "nobody")
"""The first of these accounts that exists is the default."""

_FOLDERS = ("clickhouse", "archive", "symbol-cache", "kafka/log", "kafka/server-log")
"""What these parts write, in the data folder. The collector writes its spool and the symbols that they read."""

log = logging.getLogger(__name__)


class UserError(Exception):
    """Parts cannot run as this user; the message says why, and what to do."""


def choose_user(settings: UpSettings, listen: Iterable[str]) -> Account | None:
    """Returns the user who runs the parts that need no root, and gives that user the folders that these write to. None:
    whoever runs this process. `listen`: their addresses, HOST:PORT. The data folder must exist. Raises UserError."""
    if os.geteuid() != 0:
        if settings.user:
            raise UserError(f"--user {settings.user} needs root; without root, all parts run as you")
        return None
    with _opened(settings.folder) as data:
        try:
            return _choose(settings, listen, data)
        except OSError as error:
            raise UserError(f"cannot prepare the folders in {settings.folder}: {error}") from error


def _choose(settings: UpSettings, listen: Iterable[str], data: int) -> Account | None:
    names = (settings.user,) if settings.user else DEFAULT
    user = next((account for name in names if (account := find_account(name))), None)
    if user is not None and user.uid == 0:
        for path in _foreign_folders(data):
            give(data, path, user)
        return None
    if user is None:
        problem: str | None = f"there is no user {' or '.join(names)}"
    else:
        let_enter(data, user)
        problem = _link(settings.folder) or why_not(user, _needs(settings, listen))
    if user is not None and problem is None:
        _give_all(settings, data, user)
        log.info("all parts but the collector run as the user %s", user.name)
        if user.name == DEFAULT[-1]:
            log.warning(
                "other programs run as %s, too: they can read and change the tables, and read Kafka's password. Make a "
                "user for icestream: useradd --system %s",
                *reversed(DEFAULT),
            )
        return user
    if settings.user:
        raise UserError(f"--user {settings.user}: {problem}")
    if foreign := _foreign_folders(data):
        raise UserError(
            f"{problem}; and as root, the parts would work in {settings.folder / foreign[0]}, which is not root's. "
            "Mend the first, or choose another user with --user; --user root gives that folder back to root"
        )
    log.warning(
        "all parts run as root, but only the collector needs it: %s. Mend that, or choose another user with --user "
        "(docs/security.md); with --user root this is not said",
        problem,
    )
    return None


def _give_all(settings: UpSettings, data: int, user: Account) -> None:
    for path in _FOLDERS:
        if not path.startswith("kafka/") or _uses_local_kafka(settings):
            give(data, path, user)
    let_read(data, "symbols", user)
    for folder in _named_folders(settings):
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with _opened(folder.parent) as parent:
                give(parent, folder.name, user)


def _needs(settings: UpSettings, listen: Iterable[str]) -> Needs:
    files = (
        settings.kafka_ssl_ca, settings.kafka_ssl_certificate, settings.kafka_ssl_key, settings.kafka_oauth_token_file,
        settings.gateway_scrape,
    )  # fmt: skip
    named = {Path(file).expanduser().absolute() for file in files if file}
    if _uses_local_kafka(settings):
        named |= {Path(shutil.which("java") or "").resolve(), *JARS.iterdir(), *CONFIGURATION.iterdir()}
    return Needs(settings.folder, own_code() | named, _named_folders(settings), listen)


def _uses_local_kafka(settings: UpSettings) -> bool:
    return settings.local_kafka and not settings.kafka and why_unavailable() is None


def _named_folders(settings: UpSettings) -> list[Path]:
    """Returns the folders that the settings name for what the parts write."""
    environ = os.environ.get
    named = [settings.lake, environ(variable("archive"), ""), environ(variable("symbol_cache"), "")]
    folders = [name for name in named if name and "://" not in name]
    if settings.clickhouse.startswith("chdb:"):
        folders.append(urlsplit(settings.clickhouse).path)
    return [Path(folder).expanduser().absolute() for folder in folders]


def _link(data: Path) -> str | None:
    """Returns what is a link where a folder must be: it is not followed, so the folder behind it is not given."""
    link = next((path for name in ("kafka", "symbols", *_FOLDERS) if (path := data / name).is_symlink()), None)
    return f"{link} is a link (put the folder itself there, or mount it)" if link else None


def _foreign_folders(data: int) -> list[str]:
    """Returns the folders for parts that are not root's."""
    return [path for path in _FOLDERS if owner(data, path)]


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
