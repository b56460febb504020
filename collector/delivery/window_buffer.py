"""What takes the messages of each window from the builder."""

from collections.abc import Sequence
from typing import Protocol

from collector.delivery.message_log import Message


class WindowBuffer(Protocol):
    """Holds the messages of windows until they are taken."""

    def append(self, messages: Sequence[Message]) -> None:
        """Adds the messages of a window, which stay in order."""

    def take_dropped_samples(self) -> int:
        """Returns how many samples were in windows that were given up since the last call."""


class MemoryBuffer:
    """Keeps all messages in memory."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def append(self, messages: Sequence[Message]) -> None:
        self.messages += messages

    def take_dropped_samples(self) -> int:
        return 0
