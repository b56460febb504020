"""Names of this machine that a setting allows in Host headers."""

import ipaddress
import re

from icestream.settings import SettingError

_NAME = re.compile(r"(?:\*(?=\.))?(?P<name>\.?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*)\.?(?::\d+)?|(?P<any>\*)")


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def allowed_hosts(setting: str, text: str) -> frozenset[str]:
    """Returns the names of a comma-separated list, in lower case, without ports and final dots: `.example.org` means
    all names below it, as does `*.example.org`, and `*` means all names. The list may have addresses, although they are
    allowed anyway. Raises SettingError."""
    return frozenset(_allowed(setting, entry.strip()) for entry in text.split(",") if entry.strip())


def _allowed(setting: str, entry: str) -> str:
    found = _NAME.fullmatch(entry.lower())
    if found is None and is_address(entry):
        return entry
    if found is None:
        raise SettingError(f"{setting}: expected names such as profiles.example.org, .example.org or *, got {entry!r}")
    return found["name"] or found["any"]
