"""The interface of a sink, which `sinks.runner.runner` calls."""

from collections.abc import Sequence
from typing import Any, Protocol

from confluent_kafka import Message

from sinks.runner.ranges import MessageRange


class Sink(Protocol):
    """Decodes messages and writes ranges of them. Everything is called from the thread of its
    `sinks.runner.runner.Runner`."""

    name: str
    group: str
    topics: tuple[str, ...]
    """In the order in which ranges that are due at the same time are written."""
    keeps_ranges: bool
    """Whether a retry must write exactly the same range. If not, the sink itself knows which messages it has stored."""

    writes_together: bool
    """Whether ranges of several partitions are written at once: all that there are, when one is due."""

    def check(self) -> None:
        """Raises where the store is not what the sink needs."""

    def decode(self, message: Message, cluster: str) -> Any:
        """Raises BadMessage."""

    def write(self, *ranges: MessageRange[Any]) -> None:
        """Stores what is not stored yet. Whatever it raises, each range is written again, perhaps with other ones."""

    def try_out(self, messages: Sequence[Any], empty: bool) -> None:
        """Has the store take the rows of decoded messages and drop them, so that nothing of them is stored.

        With `empty` it takes an empty table of the same columns. Raises the store's error, and NotToBlame.
        """

    def failed(self) -> None:
        """Gives up connections that may be in a bad state. Called when `write` or `idle` has raised."""

    def idle(self) -> None:
        """Does work of its own between ranges, if it has any. It is called often; what it raises is logged."""

    def close(self) -> None: ...
