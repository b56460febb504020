"""Encodes the labels of series as SampleBatch holds them, and remembers the series that were used last."""

from typing import NamedTuple

from icestream import ids
from icestream.messages.checks import Labels
from icestream.process.byte_cache import ByteCache
from icestream.v1.common_pb2 import Label, Series

SERIES_BYTES = 64_000_000
"""Limit of the series that are remembered: about 40,000 of five labels."""
_LABEL_BYTES = 200


class EncodedSeries(NamedTuple):
    """A series, and its message, which has the ID."""

    id: int
    message: bytes


class SeriesEncoder:
    """Used by one thread."""

    def __init__(self) -> None:
        self._known: ByteCache[Labels, EncodedSeries] = ByteCache(SERIES_BYTES, _size)

    def encode(self, labels: Labels) -> EncodedSeries:
        return self._known.get_or_make(labels, _encode)


def _encode(labels: Labels) -> EncodedSeries:
    series_id = ids.series_id(labels)
    series = Series(id=series_id, labels=[Label(name=name, value=value) for name, value in labels])
    return EncodedSeries(series_id, series.SerializeToString())


def _size(labels: Labels, series: EncodedSeries) -> int:
    """About what a series takes: its labels are in both."""
    return 2 * len(series.message) + _LABEL_BYTES * len(labels)
