"""Stores samples while questions are asked: see benchmarks/storage/__main__.py."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from benchmarks.clickhouse import HOSTS, ROWS, message
from icestream.clickhouse.client import Clients
from icestream.messages.message_id import MessageId
from icestream.topics import SAMPLES
from sinks.clickhouse.sink import ClickHouseSink
from sinks.runner.ranges import InFlight, MessageRange
from sinks.tables.decode import decode

A_SECOND = 50
"""Batches, which a sink writes as one range."""
_SECONDS = 90


@contextmanager
def inserting(dsn: str, start_ms: int) -> Iterator[list[int]]:
    """Stores 304,000 samples a second within the block, as a sink does; yields how many each second had.

    Their times are from `start_ms` on.
    """
    random, sink = np.random.default_rng(3), ClickHouseSink(Clients(dsn))
    made = [message(random, i % HOSTS, i // HOSTS, start_ms) for i in range(A_SECOND * _SECONDS)]
    stop, stored = threading.Event(), list[int]()

    def store() -> None:
        next_s = time.monotonic()
        for first in range(0, len(made), A_SECOND):
            decoded = [decode(data, MessageId("C", SAMPLES, 0, 0)) for data in made[first : first + A_SECOND]]
            offsets = InFlight(first, first + A_SECOND - 1, "1" * 12)
            sink.write(MessageRange("C", SAMPLES, 0, offsets, decoded, False))
            stored.append(A_SECOND * ROWS)
            next_s += 1
            if stop.wait(max(0.0, next_s - time.monotonic())):
                return

    thread = threading.Thread(target=store)
    thread.start()
    try:
        yield stored
    finally:
        stop.set()
        thread.join()
