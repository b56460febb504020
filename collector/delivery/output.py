"""Where windows go."""

from collections.abc import Sequence
from typing import Protocol

from collector.delivery.message_log import Message


class Output(Protocol):
    """Takes the messages of windows."""

    def append(self, messages: Sequence[Message]) -> None:
        """Takes a window. Its messages keep their order."""

    def take_dropped_samples(self) -> int:
        """How many samples were in windows that were given up since the last call."""


class MemoryOutput:
    """Keeps all messages in memory."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def append(self, messages: Sequence[Message]) -> None:
        self.messages += messages

    def take_dropped_samples(self) -> int:
        return 0
