"""Recordings: the Kafka messages of a few seconds in one file, to play where nothing can be profiled.

The format is the spool's (collector/delivery/message_log.py).
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from collector.delivery.message_log import Message, MessageLogError, decode, encode


class RecordingError(ValueError):
    """The file cannot be read as a recording; the message says why."""


def read_recording(path: Path) -> Iterator[Message]:
    """Yields the messages in the order of recording; leaves out a message that is cut off. Raises RecordingError."""
    try:
        with open(path, "rb") as file:
            yield from decode(file)
    except (OSError, MessageLogError) as error:
        raise RecordingError(f"{path} cannot be read as a recording: {error}") from error


def write_recording(path: Path, messages: Iterable[Message]) -> int:
    """Writes a recording message by message; returns its size in bytes. Raises OSError."""
    with open(path, "wb") as file:
        file.writelines(encode(messages))
        return file.tell()
