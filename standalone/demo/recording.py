"""Recordings: Kafka messages of a while in one file, to be replayed where nothing can be profiled.

The format is the spool's (collector/delivery/message_log.py).
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from collector.delivery.message_log import FrameError, Message, decode, encode


class RecordingError(ValueError):
    """The file cannot be read as a recording; the message says why."""


def read(path: Path) -> Iterator[tuple[str, bytes, bytes]]:
    """(topic, key, value) of each message, in the order of recording; a cut-off end is left out. Raises
    RecordingError."""
    try:
        with open(path, "rb") as file:
            yield from decode(file)
    except (OSError, FrameError) as error:
        raise RecordingError(f"{path} cannot be read as a recording: {error}") from error


def write(path: Path, messages: Iterable[tuple[str, bytes, bytes]]) -> int:
    """Writes a recording as the messages come; returns its size in bytes. Raises OSError."""
    with open(path, "wb") as file:
        file.writelines(encode(Message(*message) for message in messages))
        return file.tell()
