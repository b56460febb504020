"""The fields of a mapping in a file: each is taken once, and what nobody takes is an error."""

from typing import Any

from icestream.settings import SettingError

_MAX_ENTRIES = 100_000


class Fields:
    """A mapping. Every method raises SettingError, whose message begins with `where`."""

    def __init__(self, loaded: Any, where: str) -> None:
        if loaded is not None and not (isinstance(loaded, dict) and all(isinstance(name, str) for name in loaded)):
            raise SettingError(f"{where}: expected fields such as 'name: value', got {shown(loaded)}")
        self.where = where
        self._left: dict[str, Any] = dict(loaded or {})

    def names(self) -> list[str]:
        return list(self._left)

    def take(self, name: str) -> Any:
        """Returns what the field has, None where there is no such field."""
        return self._left.pop(name, None)

    def text(self, name: str, default: str = "") -> str:
        """Numbers are taken as they are written."""
        value = self.take(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise SettingError(f"{self.where}: {name}: expected text, got {shown(value)}")
        return str(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.take(name)
        if not isinstance(value, bool | None):
            raise SettingError(f"{self.where}: {name}: expected true or false, got {shown(value)}")
        return default if value is None else value

    def texts(self, name: str) -> list[str]:
        value = self.take(name)
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise SettingError(f"{self.where}: {name}: expected a list of texts, got {shown(value)}")
        return value

    def group(self, name: str) -> "Fields":
        """Returns the fields below a field, none where there is no such field."""
        return Fields(self.take(name), f"{self.where}: {name}")

    def groups(self, name: str) -> list["Fields"]:
        """Returns the mappings of a list."""
        value = self.take(name)
        if not isinstance(value, list | None) or len(value or []) > _MAX_ENTRIES:
            raise SettingError(f"{self.where}: {name}: expected a list of at most {_MAX_ENTRIES}, got {shown(value)}")
        return [Fields(one, f"{self.where}: {name} {number}") for number, one in enumerate(value or [], 1)]

    def end(self) -> None:
        """Says that there are no more fields."""
        if self._left:
            raise SettingError(f"{self.where}: there is no field {next(iter(self._left))!r}")


def shown(value: object) -> str:
    return f"{value!r:.60}"
