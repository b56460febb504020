"""Samples summed up by series, operation, stack and interval."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from icestream.clickhouse.span_operations import SPAN_NAME
from icestream.messages.checks import Labels
from icestream.messages.samples import SampleColumns

OperationOf = Callable[[bytes], str]
"""Returns the operation of a trace context of 24 bytes; "" if it is not known."""


@dataclass(frozen=True)
class FlatKey:
    """What one record is about."""

    partition: int
    host_id: str
    profile_type: str
    labels: Labels
    stack_id: int
    start_unix_milli: int  # of the interval
    operation: str = ""  # of the request, else the label span_name of the series; "": there is none, or it is not known


@dataclass
class FlatSum:
    value: int = 0
    samples: int = 0

    def add(self, value: int, samples: int) -> None:
        self.value += value
        self.samples += samples


SumsByKey = dict[FlatKey, FlatSum]


def no_sums() -> SumsByKey:
    return defaultdict(FlatSum)


class FlatSums:
    """Adds up messages of icestream.samples."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self.by_key = no_sums()
        self.without_operation: dict[bytes, SumsByKey] = defaultdict(no_sums)
        """Those of these sums whose samples have a trace context without a known operation, by context."""

    @property
    def stack_ids(self) -> set[int]:
        """The stack IDs of all sums."""
        return {key.stack_id for key in self.by_key}

    def records(self) -> list[tuple[FlatKey, FlatSum]]:
        """Returns the sums to publish. Leaves out those that corrections have brought to zero."""
        return [(key, flat_sum) for key, flat_sum in self.by_key.items() if flat_sum.value or flat_sum.samples]

    def add(self, partition: int, samples: SampleColumns, operation_of: OperationOf) -> None:
        """Adds a message that came from this partition."""
        interval = samples.time_unix_milli // self._interval_ms
        request, requests = _requests(samples, operation_of)
        columns = samples.series, samples.stack_id, interval, request
        rows = np.stack([column.astype(np.uint64) for column in columns], axis=1)
        keys, index = np.unique(rows, axis=0, return_inverse=True)
        values, counts = np.zeros((2, len(keys)), np.int64)
        np.add.at(values, index, samples.value)
        np.add.at(counts, index, samples.count)
        sums = zip(keys.tolist(), values.tolist(), counts.tolist(), strict=True)
        for (series, stack_id, number, row), value, count in sums:
            labels, start = samples.labels[series], number * self._interval_ms
            operation, context = requests[row]
            operation = operation or dict(labels).get(SPAN_NAME, "")
            key = FlatKey(partition, samples.host_id, samples.profile_type, labels, stack_id, start, operation)
            self.by_key[key].add(value, count)
            if context:
                self.without_operation[context][key].add(value, count)


def _requests(samples: SampleColumns, operation_of: OperationOf) -> tuple[np.ndarray, list[tuple[str, bytes]]]:
    """Returns the row of each sample in a list of operations. Where the operation is not known, the list has the
    trace context as well."""
    rows = {("", b""): 0}
    of_context = [0]
    for context in samples.contexts:
        operation = operation_of(context.tobytes())
        # A span without its trace never gets an operation.
        request = ("", context.tobytes()) if not operation and context[:16].any() else (operation, b"")
        of_context.append(rows.setdefault(request, len(rows)))
    return np.array(of_context)[samples.context], list(rows)
