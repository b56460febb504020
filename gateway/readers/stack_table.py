"""Collects the distinct stacks, labels and contexts of a profile while a reader walks through it."""

from collections import Counter
from collections.abc import Callable, Hashable
from itertools import chain
from typing import NamedTuple

import numpy as np

from gateway.errors import bad_profile
from gateway.readers.location_table import ProfileLocations
from icestream.messages.checks import Labels
from icestream.messages.raw import MAX_DEPTH
from icestream.messages.raw_encoder import Stacks, Window
from icestream.times import MAX_UNIX_NANO

_MOST_LABELS_READ = 500_000
"""The most labels of all different samples of a profile: each takes microseconds. They are 25,000 sets of 20 labels."""


class StackTable:
    """The rows of a Window that samples refer to."""

    def __init__(self, max_series: int) -> None:
        self.dropped: Counter[str] = Counter()
        self._max_series = max_series
        self._stacks: dict[tuple[int, ...], int] = {}
        self._series: dict[Labels, int] = {}
        self._series_by_key: dict[Hashable, int | None] = {}
        self._labels_read = 0
        self._contexts: dict[bytes, int] = {}

    def stack(self, locations: tuple[int, ...]) -> int:
        """Returns the row of a stack: rows of its locations, leaf first."""
        if len(locations) > MAX_DEPTH:
            self.dropped["frames"] += len(locations) - MAX_DEPTH
            locations = locations[:MAX_DEPTH]
        return self._stacks.setdefault(locations, len(self._stacks))

    def series(self, labels: Labels) -> int:
        """Returns the row of a set of labels."""
        return self._series.setdefault(labels, len(self._series))

    def series_of_sample(self, key: Hashable, read: Callable[[], Labels], of_profile: Labels, samples: int = 1) -> int:
        """Returns the row of the labels of a sample, or of several with the same labels; beyond the limits, that of the
        profile's own labels. `key` stands for the labels, which are read once."""
        if key not in self._series_by_key:
            self._series_by_key[key] = self._read_series(read, of_profile)
        row = self._series_by_key[key]
        if row is None:
            self.dropped["labels"] += samples
            return self.series(of_profile)
        return row

    def _read_series(self, read: Callable[[], Labels], of_profile: Labels) -> int | None:
        if self._labels_read >= _MOST_LABELS_READ:
            return None
        labels = read()
        if labels is not of_profile:
            self._labels_read += len(labels)
        if len(self._series) >= self._max_series and labels != of_profile:
            return self._series.get(labels)
        return self.series(labels)

    def context(self, trace_id: str | bytes, span_id: str | bytes, samples: int = 1) -> int:
        """Returns the row + 1 of a trace context of so many samples, given as bytes or in hex; 0 where there is none. A
        span may come without its trace, as older SDKs for span profiles send it: its trace ID is zeros then."""
        try:
            trace, span = (bytes.fromhex(i) if isinstance(i, str) else i for i in (trace_id, span_id))
        except ValueError:
            self.dropped["contexts"] += samples
            return 0
        if not any(trace) and not any(span):
            return 0
        if len(trace) not in (0, 16) or len(span) not in (0, 8):
            self.dropped["contexts"] += samples
            return 0
        return self._contexts.setdefault(trace.ljust(16, b"\0") + span.ljust(8, b"\0"), len(self._contexts) + 1)

    def stacks(self, locations: ProfileLocations) -> Stacks:
        """Returns the stacks by their rows."""
        depth = np.array(list(map(len, self._stacks)), np.int64)
        return locations.stacks(depth, np.fromiter(chain.from_iterable(self._stacks), np.int64, depth.sum()))

    def window(self, start_unix_nano: int, end_unix_nano: int, rows: "ProfileSamples", stacks: Stacks) -> Window:
        """Returns the samples `rows` with what they refer to. Raises Refused where a time fits no message."""
        _check_times(start_unix_nano, end_unix_nano)
        contexts = list(self._contexts)
        return Window(
            **rows._asdict(),
            stacks=stacks,
            labels=list(self._series),
            trace_ids=b"".join(context[:16] for context in contexts),
            span_ids=b"".join(context[16:] for context in contexts),
            start_unix_nano=start_unix_nano,
            end_unix_nano=end_unix_nano,
        )


def _check_times(first: int, last: int) -> None:
    if not 0 <= first <= last < MAX_UNIX_NANO:
        raise bad_profile(f"expected times from 1970 to 2099, got {first} to {last} ns")


class ProfileSamples(NamedTuple):
    """n samples."""

    time_unix_nano: np.ndarray  # int64 (n,)
    series: np.ndarray  # int64 (n,)
    pid: np.ndarray  # uint32 (n,)
    tid: np.ndarray  # uint32 (n,)
    stack: np.ndarray  # int64 (n,)
    context: np.ndarray  # int64 (n,)


class SampleLists:
    """Columns of samples, filled row by row."""

    def __init__(self) -> None:
        self.time_unix_nano: list[int] = []
        self._others: list[tuple[int, int, int, int, int]] = []

    def add(self, time_unix_nano: int, series: int, pid: int, tid: int, stack: int, context: int) -> None:
        self.time_unix_nano.append(time_unix_nano)
        pid, tid = (number if 0 <= number < 2**32 else 0 for number in (pid, tid))
        self._others.append((series, pid, tid, stack, context))

    def columns(self) -> ProfileSamples:
        """Raises Refused where a time fits no message."""
        times = self.time_unix_nano
        if times:
            _check_times(min(times), max(times))
        series, pid, tid, stack, context = np.array(self._others, np.int64).reshape(-1, 5).T
        return ProfileSamples(
            np.array(times, np.int64), series, pid.astype(np.uint32), tid.astype(np.uint32), stack, context
        )
