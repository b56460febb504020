"""Collects the distinct stacks, labels and contexts of a profile while a reader walks through it."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import chain

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

    def series_of_sample(self, key: Hashable, read: Callable[[], Labels], of_profile: Labels) -> int:
        """Returns the row of the labels of a sample; beyond the limits, that of the profile's own labels. `key` stands
        for the labels, which are read once."""
        if key not in self._series_by_key:
            self._series_by_key[key] = self._read_series(read, of_profile)
        row = self._series_by_key[key]
        if row is None:
            self.dropped["labels"] += 1
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

    def context(self, trace_id: str | bytes, span_id: str | bytes) -> int:
        """Returns the row + 1 of a trace context, given as bytes or in hex; 0 where there is none. A span may come
        without its trace, as older SDKs for span profiles send it: its trace ID is zeros then."""
        try:
            trace, span = (bytes.fromhex(i) if isinstance(i, str) else i for i in (trace_id, span_id))
        except ValueError:
            self.dropped["contexts"] += 1
            return 0
        if not any(trace) and not any(span):
            return 0
        if len(trace) not in (0, 16) or len(span) not in (0, 8):
            self.dropped["contexts"] += 1
            return 0
        return self._contexts.setdefault(trace.ljust(16, b"\0") + span.ljust(8, b"\0"), len(self._contexts) + 1)

    def window(
        self, start_unix_nano: int, end_unix_nano: int, rows: "SampleLists", locations: ProfileLocations
    ) -> Window:
        """Returns the samples `rows` with what they refer to. Raises Refused where a time fits no message."""
        times = [start_unix_nano, end_unix_nano, *rows.time_unix_nano]
        if not 0 <= min(times) <= max(times) < MAX_UNIX_NANO:
            raise bad_profile(f"expected times from 1970 to 2099, got {min(times)} to {max(times)} ns")
        contexts = list(self._contexts)
        depth = np.array(list(map(len, self._stacks)), np.int64)
        return Window(
            time_unix_nano=np.array(rows.time_unix_nano, np.int64),
            series=np.array(rows.series, np.int64),
            pid=np.array(rows.pid, np.uint32),
            tid=np.array(rows.tid, np.uint32),
            stack=np.array(rows.stack, np.int64),
            context=np.array(rows.context, np.int64),
            stacks=Stacks(
                mapping=locations.mapping,
                address=locations.address,
                name=locations.name,
                depth=depth,
                frames=np.fromiter(chain.from_iterable(self._stacks), np.int64, depth.sum()),
                mappings=locations.mappings,
                names=locations.names,
                lines=locations.lines,
            ),
            labels=list(self._series),
            trace_ids=b"".join(context[:16] for context in contexts),
            span_ids=b"".join(context[16:] for context in contexts),
            start_unix_nano=start_unix_nano,
            end_unix_nano=end_unix_nano,
        )


class SampleLists:
    """Columns of samples, filled row by row."""

    def __init__(self) -> None:
        self.time_unix_nano: list[int] = []
        self.series: list[int] = []
        self.pid: list[int] = []
        self.tid: list[int] = []
        self.stack: list[int] = []
        self.context: list[int] = []

    def add(self, time_unix_nano: int, series: int, pid: int, tid: int, stack: int, context: int) -> None:
        self.time_unix_nano.append(time_unix_nano)
        self.series.append(series)
        self.pid.append(pid if 0 <= pid < 2**32 else 0)
        self.tid.append(tid if 0 <= tid < 2**32 else 0)
        self.stack.append(stack)
        self.context.append(context)

    def add_all(self, time_unix_nano: int, series: int, stacks: Sequence[int]) -> None:
        """Adds samples of one series, without process, thread and context."""
        columns = (self.time_unix_nano, self.series, self.pid, self.tid, self.context)
        for column, value in zip(columns, (time_unix_nano, series, 0, 0, 0), strict=True):
            column += [value] * len(stacks)
        self.stack += stacks
