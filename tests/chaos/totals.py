"""Totals for each service, stack and trace, and for each window: of what was published, and of what the stores hold.

`python -m tests.chaos.totals CLICKHOUSE` prints those of an embedded ClickHouse: a process can open only one.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from clickhouse_connect.driver.client import Client
from deltalake import DeltaTable

from icestream.clickhouse.client import connect
from icestream.columns import packed
from icestream.v1.activity_pb2 import ActivityBatch
from icestream.v1.raw_pb2 import RawBatch
from tests.data.messages import WINDOW_NS

ROOT = Path(__file__).parents[2]
WINDOW_S = WINDOW_NS // 10**9
_NO_TRACE = bytes(16).hex()
Row = tuple[str, str, str]
"""Service; functions from root to leaf, separated by semicolons; trace ID in hex, or zeros."""
Counted = Counter[tuple[str, ...]]


@dataclass
class Totals:
    """Sums in nanoseconds without zeros."""

    samples: Counted = field(default_factory=Counter)
    """Values of samples, by Row."""
    windows: Counted = field(default_factory=Counter)
    """Values of samples, by host and the second in which a window begins: shows where values are lost."""
    thread_cpu_ns: Counted = field(default_factory=Counter)
    """Thread CPU of activity, by trace ID."""

    def only(self, others: "Totals") -> "Totals":
        """Those of the same services, hosts and traces as others."""
        kept = {}
        for one in fields(self):
            mine, names = getattr(self, one.name), {key[0] for key in getattr(others, one.name)}
            kept[one.name] = Counter({key: value for key, value in mine.items() if key[0] in names})
        return Totals(**kept)

    def __iadd__(self, other: "Totals") -> "Totals":
        self.samples.update(other.samples)
        self.windows.update(other.windows)
        self.thread_cpu_ns.update(other.thread_cpu_ns)
        return self


def of_window(raw_bytes: bytes, activity_bytes: bytes | None) -> Totals:
    """The totals of a raw batch, whose samples get their traces by the intervals of its window's activity alone."""
    raw = RawBatch.FromString(raw_bytes)
    activity = ActivityBatch.FromString(activity_bytes or b"")
    services = [next(label.value for label in one.labels if label.name == "service") for one in raw.series]
    stacks = _stacks(raw)
    intervals = [
        (tid, activity.start_unix_nano + start, activity.start_unix_nano + start + duration, trace)
        for tid, start, duration, trace in zip(
            activity.interval_tid, activity.interval_start_offset_ns, activity.interval_duration_ns,
            (activity.context_trace_ids[16 * c : 16 * c + 16].hex() for c in activity.interval_context), strict=True,
        )
    ]  # fmt: skip
    samples: Counted = Counter()
    columns = (raw.sample_offset_us, raw.sample_tid, raw.sample_series, raw.sample_stack)
    for offset_us, tid, series, stack in zip(*columns, strict=True):
        at = raw.start_unix_nano + offset_us * 1000
        trace = next((t for owner, start, end, t in intervals if owner == tid and start <= at < end), _NO_TRACE)
        samples[services[series], stacks[stack], trace] += raw.period
    cpu: Counted = Counter()
    for (_, _, _, trace), cpu_ns in zip(intervals, activity.interval_thread_cpu_ns, strict=True):
        cpu[(trace,)] += cpu_ns
    windows = Counter({(raw.host_id, str(raw.start_unix_nano // 10**9)): samples.total()})
    return Totals(samples, windows, _nonzero(cpu))


def in_clickhouse(database: Path) -> Totals:
    """The totals that a store's embedded ClickHouse holds, once the store has ended."""
    command = [sys.executable, "-m", "tests.chaos.totals", f"chdb://{database}"]
    answer = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)
    return Totals(**{name: Counter({tuple(key): value for *key, value in rows}) for name, rows in answer.items()})


def in_lake(folder: Path) -> Totals:
    """The totals that the lake holds."""
    samples = _read(folder, "samples", "service", "stack_id", "trace_id", "host_id", "time", "value")
    activity = _read(folder, "activity", "trace_id", "thread_cpu_ns")
    nodes = _read(folder, "nodes", "node_id", "parent_id", "location_id")
    locations = _read(folder, "locations", "location_id", "lines").to_pylist()
    names = Names(_rows(nodes), {row["location_id"]: [line["function"] for line in row["lines"]] for row in locations})
    seconds = pc.divide(pc.cast(samples.column("time"), pa.int64()), 10**6)
    window = pc.multiply(pc.divide(seconds, WINDOW_S), WINDOW_S)
    samples = samples.drop_columns(["time"]).append_column("window", window)
    return Totals(
        names.sums(_summed(samples, "value", "service", "stack_id", "trace_id")),
        _counted(_summed(samples, "value", "host_id", "window")),
        _counted(_summed(activity, "thread_cpu_ns", "trace_id")),
    )


def differences(expected: Totals, stored: Totals) -> list[str]:
    """One line for each total that differs."""
    lines = []
    for what in ("windows", "samples", "thread_cpu_ns"):
        wanted, found = getattr(expected, what), getattr(stored, what)
        for key in sorted(wanted.keys() | found.keys()):
            if wanted[key] != found[key]:
                name = ", ".join(_cut(part) for part in key)
                lines.append(f"{what} of {name}: expected {wanted[key]}, stored {found[key]}")
    return lines


class Names:
    """Names the stacks that a store's nodes and locations describe."""

    def __init__(self, nodes: Iterable[tuple[int, int, int]], functions: Mapping[int, list[str]]) -> None:
        self._nodes = {node: (parent, location) for node, parent, location in nodes}
        self._functions = functions
        self._stacks: dict[int, str] = {0: ""}

    def stack(self, stack_id: int) -> str:
        """Functions from root to leaf; says where a node or a name is missing."""
        if stack_id not in self._stacks:
            self._stacks[stack_id] = "[its own parent]"
            parent, location = self._nodes.get(stack_id, (0, 0))
            frame = ";".join(self._functions.get(location) or [f"no name of location {location}"])
            above = self.stack(parent)
            self._stacks[stack_id] = f"{above};{frame}" if above else frame
        return self._stacks[stack_id]

    def sums(self, rows: Iterable[tuple[Any, ...]]) -> Counted:
        """Rows of service, stack ID, trace ID and value, by the stacks' names."""
        found: Counted = Counter()
        for service, stack_id, trace, value in rows:
            found[service, self.stack(stack_id), _text(trace)] += value
        return _nonzero(found)


def _stacks(raw: RawBatch) -> list[str]:
    """The stacks of a batch whose locations have one function each."""
    ends = np.cumsum(packed.column(raw, "stack_depth"))
    functions = [raw.strings[raw.location_function[frame]] for frame in raw.stack_frames]
    return [";".join(reversed(functions[end - depth : end])) for end, depth in zip(ends, raw.stack_depth, strict=True)]


def _nonzero(counted: Counted) -> Counted:
    return Counter({key: value for key, value in counted.items() if value})


def _counted(rows: Iterable[tuple[Any, ...]]) -> Counted:
    return _nonzero(Counter({tuple(_text(part) for part in key): value for *key, value in rows}))


def _text(part: object) -> str:
    return part.hex() if isinstance(part, bytes) else str(part)


def _cut(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:50]}...{text[-27:]}"


def _read(folder: Path, table: str, *columns: str) -> pa.Table:
    return DeltaTable(str(folder / table)).to_pyarrow_table(columns=list(columns))


def _summed(table: pa.Table, value: str, *by: str) -> Iterator[tuple[Any, ...]]:
    """Rows of the columns `by`, and the sum of `value`."""
    return _rows(table.group_by(list(by)).aggregate([(value, "sum")]).select([*by, f"{value}_sum"]))


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _query(client: Client) -> dict[str, list[list[object]]]:
    """The fields of Totals, as lists of a key's parts and a value. Raises AssertionError if tables contradict."""

    def rows(sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in client.query(sql).result_rows]

    names = Names(
        rows("SELECT node_id, parent_id, location_id FROM nodes"),
        dict(rows("SELECT location_id, arrayMap(line -> line.function, lines) FROM locations FINAL")),
    )
    by_trace = "SELECT lower(hex(trace_id)), sum(value) AS total FROM {} GROUP BY 1 HAVING total != 0 ORDER BY 1"
    traced = [row for row in rows(by_trace.format("samples")) if row[0] != _NO_TRACE]
    assert traced == rows(by_trace.format("trace_samples")), "the tables samples and trace_samples differ"
    seconds = f"intDiv(toUnixTimestamp(time), {WINDOW_S}) * {WINDOW_S}"
    found = Totals(
        names.sums(rows("SELECT service, stack_id, lower(hex(trace_id)), sum(value) FROM samples GROUP BY ALL")),
        _counted(rows(f"SELECT host_id, {seconds} AS second, sum(value) FROM samples GROUP BY ALL")),
        _counted(rows("SELECT lower(hex(trace_id)), sum(thread_cpu_ns) FROM activity GROUP BY ALL")),
    )
    return {one.name: [[*key, v] for key, v in getattr(found, one.name).items()] for one in fields(found)}


if __name__ == "__main__":
    print(json.dumps(_query(connect(sys.argv[1]))))
