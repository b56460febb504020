"""Reads files of YAML, or of JSON, which is YAML, that users write."""

from pathlib import Path
from typing import Any

from icestream.settings import SettingError, UnreadableFile

_MAX_BYTES = 1 << 20


def load_yaml(path: Path, what: str) -> Any:
    """Returns what a file has; `what` it should have is for people. Raises SettingError, and
    UnreadableFile if the file may be there later."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        if path.stat().st_size > _MAX_BYTES:
            raise SettingError(f"{path}: larger than {_MAX_BYTES} bytes")
        return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableFile(f"{what} cannot be read from {path}: {error}") from None
    except (UnicodeDecodeError, YAMLError, RecursionError, ValueError) as error:
        raise SettingError(f"{what} cannot be read from {path}: {error}") from None


def shown(value: object) -> str:
    """Returns a value of such a file for a message, cut if it is long."""
    return f"{value!r:.60}"
