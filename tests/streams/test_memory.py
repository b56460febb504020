"""What a worker remembers of messages is bounded by bytes, whatever the messages hold."""

import tracemalloc
from collections.abc import Callable

from icestream.messages import checks
from icestream.messages.stack_encoder import LocationNames
from icestream.symcache import Line
from streams import symbolize
from streams.process import SERIES_BYTES, Processor
from streams.symbolize import Symbolizer
from tests.data.messages import raw_series


def series(number: int, size: int) -> tuple[tuple[str, str], ...]:
    return tuple((f"label{i}", f"{number:09}" + "x" * size) for i in range(10))


def grown(use: Callable[[int], object], count: int) -> int:
    """Bytes that are still allocated after `count` uses."""
    tracemalloc.start()
    try:
        for number in range(count):
            use(number)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_series_that_are_remembered() -> None:
    processor = Processor()
    used = grown(lambda number: processor._series_bytes(series(number, 1000)), 3500)
    assert SERIES_BYTES / 2 < used < 1.2 * SERIES_BYTES


def test_labels_that_were_checked() -> None:
    def use(number: int) -> None:
        checks.labels([raw_series(dict(series(number, 1000)))])

    assert checks.LABELS_BYTES / 2 < grown(use, 3500) < 1.2 * checks.LABELS_BYTES


def test_names_that_are_remembered() -> None:
    symbolizer = Symbolizer(None)

    def use(number: int) -> None:
        line = Line(f"{number}" + "f" * 5000, f"{number}" + "p" * 500, 1, 1)
        symbolizer._cache.put(number, LocationNames(1, (line,)))

    assert symbolize.CACHED_BYTES / 2 < grown(use, 15_000) < 1.2 * symbolize.CACHED_BYTES
