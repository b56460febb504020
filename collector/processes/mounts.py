"""Reads the table of mounts of a process. Format: proc_pid_mountinfo(5)."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from collector.processes.process import folder_of

_MOST_BYTES = 1 << 20
_ESCAPE = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    device: str
    root: str
    """The folder or file of the file system that is mounted."""
    point: str


def mounts(pid: int, with_text: bytes = b"", proc: str = "/proc") -> Iterator[Mount]:
    """Yields the mounts whose lines have this text; nothing if the process is gone."""
    try:
        with open(f"{folder_of(pid, proc)}/mountinfo", "rb") as file:
            lines = file.read(_MOST_BYTES).split(b"\n")
    except OSError:
        return
    for line in lines:
        fields = line.decode("utf-8", "surrogateescape").split(" ") if with_text in line else []
        if len(fields) > 5:
            yield Mount(fields[2], _text(fields[3]), _text(fields[4]))


def _text(field: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), field)
