"""Samples summed up by series, stack and interval."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from icestream.messages.checks import Labels
from icestream.messages.samples import SampleColumns


@dataclass(frozen=True)
class FlatKey:
    """What one record is about."""

    partition: int
    host_id: str
    profile_type: str
    labels: Labels
    stack_id: int
    start_unix_milli: int  # of the interval


@dataclass
class FlatSum:
    value: int = 0
    samples: int = 0


class Sums:
    """Adds up messages of icestream.samples."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self.by_key: dict[FlatKey, FlatSum] = defaultdict(FlatSum)

    @property
    def stack_ids(self) -> set[int]:
        """Of all sums."""
        return {key.stack_id for key in self.by_key}

    def add(self, partition: int, samples: SampleColumns) -> None:
        """Adds a message that came from this partition."""
        interval = samples.time_unix_milli // self._interval_ms
        rows = np.stack([samples.series.astype(np.uint64), samples.stack_id, interval.astype(np.uint64)], axis=1)
        keys, index = np.unique(rows, axis=0, return_inverse=True)
        values, counts = np.zeros((2, len(keys)), np.int64)
        np.add.at(values, index, samples.value)
        np.add.at(counts, index, samples.count)
        columns = (keys.tolist(), values.tolist(), counts.tolist())
        for (series, stack_id, number), value, count in zip(*columns, strict=True):
            labels, start = samples.labels[series], number * self._interval_ms
            key = FlatKey(partition, samples.host_id, samples.profile_type, labels, stack_id, start)
            of_key = self.by_key[key]
            of_key.value += value
            of_key.samples += count
