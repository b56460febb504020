"""The fields of a mapping in a file: each is taken once, and what nobody takes is an error."""

import re
from typing import Any

from gateway.scrape.known_fields import is_known_elsewhere
from icestream.files.yaml_file import shown
from icestream.settings import SettingError

_MAX_ENTRIES = 100_000
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?")
_DURATION_UNITS_S = (86_400.0, 3600.0, 60.0, 1.0, 0.001)
_SIZE = re.compile(r"(\d{1,15}) ?(?:([KMGTPE]?)i?B)?")


class ConfigFields:
    """A mapping. Every method raises SettingError, whose message begins with `where`."""

    def __init__(self, loaded: Any, where: str) -> None:
        if loaded is not None and not (isinstance(loaded, dict) and all(isinstance(name, str) for name in loaded)):
            raise SettingError(f"{where}: expected fields such as 'name: value', got {shown(loaded)}")
        self.where = where
        self._left: dict[str, Any] = dict(loaded or {})

    def names(self) -> list[str]:
        return list(self._left)

    def has(self, name: str) -> bool:
        return name in self._left

    def pop(self, name: str) -> Any:
        """Returns what the field has, None where there is no such field."""
        return self._left.pop(name, None)

    def text(self, name: str, default: str = "") -> str:
        """Numbers are taken as they are written."""
        value = self.pop(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise SettingError(f"{self.where}: {name}: expected text, got {shown(value)}")
        return str(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.pop(name)
        if not isinstance(value, bool | None):
            raise SettingError(f"{self.where}: {name}: expected true or false, got {shown(value)}")
        return default if value is None else value

    def seconds(self, name: str, default: float) -> float:
        """Returns a duration such as 1m30s, 100ms to a day."""
        text = self.text(name)
        match = _DURATION.fullmatch(text)
        if match is None:
            raise SettingError(f"{self.where}: {name}: expected a duration such as 15s or 1m, got {shown(text)}")
        parts = zip(match.groups(), _DURATION_UNITS_S, strict=True)
        seconds = sum(int(number) * unit for number, unit in parts if number) if text else default
        if not 0.1 <= seconds <= 86_400:
            raise SettingError(f"{self.where}: {name}: expected 100ms to 24h, got {text}")
        return seconds

    def size(self, name: str, default: int) -> int:
        """Returns bytes, written as Prometheus does: 10MB are 10 * 2^20."""
        text = self.text(name)
        match = _SIZE.fullmatch(text)
        if text and match is None:
            raise SettingError(f"{self.where}: {name}: expected a size such as 10MB, got {shown(text)}")
        return int(match[1]) << 10 * " KMGTPE".index(match[2] or " ") if match else default

    def texts(self, name: str, numbers: bool = False, empty: bool = False) -> list[str]:
        """`numbers`: whether numbers are taken as they are written. `empty`: whether the field may be there without a
        value, which is how programs in Go write an empty list in JSON."""
        if empty and self.has(name) and self._left[name] is None:
            self._left[name] = []
        value = self.pop(name)
        kinds = (str, int, float) if numbers else (str,)
        if not isinstance(value, list) or not all(type(one) in kinds for one in value):  # true is an int for Python
            raise SettingError(f"{self.where}: {name}: expected a list of texts, got {shown(value)}")
        return [str(one) for one in value]

    def group(self, name: str) -> "ConfigFields":
        """Returns the fields below a field, none where there is no such field."""
        return ConfigFields(self.pop(name), f"{self.where}: {name}")

    def groups(self, name: str) -> list["ConfigFields"]:
        """Returns the mappings of a list."""
        value = self.pop(name)
        if not isinstance(value, list | None) or len(value or []) > _MAX_ENTRIES:
            raise SettingError(f"{self.where}: {name}: expected a list of at most {_MAX_ENTRIES}, got {shown(value)}")
        return [ConfigFields(one, f"{self.where}: {name} {number}") for number, one in enumerate(value or [], 1)]

    def end(self) -> None:
        """Says that there are no more fields."""
        if self._left:
            name = next(iter(self._left))
            if is_known_elsewhere(name):
                raise SettingError(f"{self.where}: icestream does not support {name}, which others have: remove it")
            raise SettingError(f"{self.where}: there is no field {name!r}")
