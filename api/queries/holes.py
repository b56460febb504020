"""What is missing in a time range: holes, one for each host and kind."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from api.queries.database import Database, texts
from api.queries.host_names import read_host_names
from api.queries.runs import SETTLED_MS, CollectorRun, Gap, add_hosts, read_gaps, read_known_from, read_runs
from api.queries.selection.conditions import Conditions, add_time
from api.queries.selection.selector import Matcher
from api.queries.selection.time_range import TimeRange
from icestream.times import format_unix_nano

_MS = 10**6
_MAX_DEAD_LETTERS = 10_000


@dataclass
class Hole:
    """What is missing of one host, of one kind."""

    kind: str
    host_id: str
    count: int = 0  # what it counts depends on the kind, see docs/query-api.md
    seconds: float = 0.0
    missing_cpu_ns: int | None = None  # an estimate; None: not known
    first_unix_milli: int = 2**62
    last_unix_milli: int = 0
    detail: str = ""
    host: str = ""  # its name; "": not known

    def add(
        self, count: int, from_unix_milli: float, to_unix_milli: float, missing_cpu_ns: float | None = None
    ) -> None:
        """Adds a part of the hole; [from_unix_milli, to_unix_milli] is what of it lies in the range."""
        self.count += count
        self.seconds += max(to_unix_milli - from_unix_milli, 0) / 1000
        self.first_unix_milli = min(self.first_unix_milli, int(from_unix_milli))
        self.last_unix_milli = max(self.last_unix_milli, int(to_unix_milli))
        if missing_cpu_ns is not None:
            self.missing_cpu_ns = (self.missing_cpu_ns or 0) + int(missing_cpu_ns)

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "host_id": self.host_id,
            "host": self.host,
            "count": self.count,
            "seconds": round(self.seconds, 3),
            "missing_cpu_ns": self.missing_cpu_ns,
            "first": format_unix_nano(self.first_unix_milli * _MS),
            "last": format_unix_nano(self.last_unix_milli * _MS),
            "detail": self.detail,
        }


@dataclass(frozen=True)
class Completeness:
    """What was found in a time range."""

    hosts: int  # that sent something, or should have
    windows: int  # of samples that are stored
    sampled_cpu_ns: int  # of the windows in the range; `missing_cpu_ns` comes on top
    holes: list[Hole]  # largest first
    known_from_unix_milli: int | None = None
    """What is missing before this is not known; None: it is known for all of the range."""

    @property
    def complete(self) -> bool:
        """Whether it is known that nothing is missing: where no host was, as in the future, nothing is known."""
        return self.hosts > 0 and not self.holes and self.known_from_unix_milli is None

    @property
    def missing_cpu_ns(self) -> int:
        """What is known to be missing. Dropped samples are those of missing windows: only the larger one counts."""
        of_host: dict[str, dict[str, int]] = defaultdict(dict)
        for hole in self.holes:
            of_host[hole.host_id][hole.kind] = hole.missing_cpu_ns or 0
        return sum(
            found.get("lost_samples", 0) + max(found.get("missing_windows", 0), found.get("dropped_samples", 0))
            for found in of_host.values()
        )


def read_completeness(database: Database, time_range: TimeRange, matchers: tuple[Matcher, ...]) -> Completeness:
    """Raises ApiError."""
    now_unix_milli = time.time_ns() // _MS
    runs = read_runs(database, time_range, matchers)
    gaps = read_gaps(database, time_range, runs, now_unix_milli)
    known_from_unix_milli = read_known_from(database, now_unix_milli)
    bounds = time_range.start_unix_nano // _MS, min(-(-time_range.end_unix_nano // _MS), now_unix_milli)
    holes = Holes(*bounds)
    holes.add_gaps(runs, gaps)
    holes.add_losses(runs)
    holes.add_absences(runs)
    letters = list(_dead_letters(database, time_range, matchers))
    found = sorted(
        [*holes.found(), *letters], key=lambda hole: (-(hole.missing_cpu_ns or 0), -hole.seconds, hole.host_id)
    )
    names = read_host_names(database, time_range, [hole.host_id for hole in found])
    for hole in found:
        hole.host = names.get(hole.host_id, "")
    samples = [run for run in runs if run.kind == "samples"]
    return Completeness(
        hosts=len({run.host_id for run in samples}),
        windows=sum(run.windows_in_range for run in samples),
        sampled_cpu_ns=sum(run.cpu_ns * run.windows_in_range // max(run.windows, 1) for run in samples),
        holes=found,
        known_from_unix_milli=known_from_unix_milli if known_from_unix_milli > bounds[0] else None,
    )


class Holes:
    """Collects the holes of [start_unix_milli, end_unix_milli), one for each host and kind."""

    def __init__(self, start_unix_milli: int, end_unix_milli: int) -> None:
        self._start_unix_milli, self._end_unix_milli = start_unix_milli, end_unix_milli
        self._holes: dict[tuple[str, str], Hole] = {}

    def found(self) -> Iterable[Hole]:
        return self._holes.values()

    def add_gaps(self, runs: list[CollectorRun], gaps: list[Gap]) -> None:
        """Numbers that are missing in the sequences."""
        by_key = {run.key: run for run in runs}
        for gap in gaps:
            run = by_key[gap.run]
            spread_ms = (gap.at_unix_milli - gap.after_unix_milli) * gap.windows / (gap.windows + 1)
            from_unix_milli: float = gap.after_unix_milli
            if spread_ms <= 0:  # incomplete, or the clock was set back meanwhile: it lies before the window after it
                spread_ms = gap.windows * gap.share * run.window_ms
                from_unix_milli = gap.at_unix_milli - spread_ms
            part = self._part_ms(from_unix_milli, from_unix_milli + spread_ms) / spread_ms
            if part > 0:
                missing = gap.windows * part
                kind = "missing_windows" if run.kind == "samples" else "missing_activity"
                cpu = run.cpu_ns / max(run.windows, 1) * missing * gap.share if run.kind == "samples" else None
                self._add(kind, run, max(1, round(missing)), from_unix_milli, from_unix_milli + spread_ms, cpu)

    def add_losses(self, runs: list[CollectorRun]) -> None:
        """What the collectors themselves report."""
        for run in runs:
            at = (
                max(run.first_at_unix_milli, self._start_unix_milli),
                min(run.last_at_unix_milli, self._end_unix_milli),
            )
            if run.lost:
                self._at(self._hole("lost_samples", run.host_id), run.lost, at, run.lost_cpu_ns)
            if run.dropped:
                self._at(self._hole("dropped_samples", run.host_id), run.dropped, at, run.dropped_cpu_ns)
            if run.lost_waits:
                self._at(self._hole("lost_waits", run.host_id), run.lost_waits, at, None)
            if run.slow_windows:
                hole = self._hole("lower_rate", run.host_id)
                self._at(hole, run.slow_windows, at, None)
                hole.seconds += run.slow_windows * run.window_ms / 1000
                hole.detail = (
                    f"down to {1e9 / run.slow_period_ns:.3g} samples per second and CPU instead of"
                    f" {1e9 / run.configured_period_ns:.3g}"
                )

    def add_absences(self, runs: list[CollectorRun]) -> None:
        """Times in which no collector ran, and collectors that ended or fell silent."""
        of_collector: dict[str, list[CollectorRun]] = defaultdict(list)
        for run in sorted(runs, key=lambda run: run.started_unix_nano):
            if run.kind == "samples":
                of_collector[run.collector].append(run)
        for sent in of_collector.values():
            last_unix_milli = sent[0].last_at_unix_milli
            for run in sent[1:]:
                started_unix_milli = run.started_unix_nano / _MS
                if started_unix_milli > last_unix_milli and self._part_ms(last_unix_milli, started_unix_milli) > 0:
                    self._add("not_running", run, 1, last_unix_milli, started_unix_milli)
                last_unix_milli = max(last_unix_milli, run.last_at_unix_milli)
            if self._end_unix_milli - last_unix_milli > SETTLED_MS:
                self._add("silent", sent[-1], 1, last_unix_milli, self._end_unix_milli)

    def _add(
        self,
        kind: str,
        run: CollectorRun,
        count: int,
        from_unix_milli: float,
        to_unix_milli: float,
        cpu_ns: float | None = None,
    ) -> None:
        hole = self._hole(kind, run.host_id)
        hole.add(count, max(from_unix_milli, self._start_unix_milli), min(to_unix_milli, self._end_unix_milli), cpu_ns)

    @staticmethod
    def _at(hole: Hole, count: int, at: tuple[int, int], cpu_ns: int | None) -> None:
        """Adds a loss at no known moment in the range `at`; adds no seconds."""
        seconds = hole.seconds
        hole.add(count, *at, cpu_ns)
        hole.seconds = seconds

    def _hole(self, kind: str, host_id: str) -> Hole:
        return self._holes.setdefault((kind, host_id), Hole(kind, host_id))

    def _part_ms(self, from_unix_milli: float, to_unix_milli: float) -> float:
        return max(0.0, min(to_unix_milli, self._end_unix_milli) - max(from_unix_milli, self._start_unix_milli))


def _dead_letters(database: Database, time_range: TimeRange, matchers: tuple[Matcher, ...]) -> Iterator[Hole]:
    conditions = Conditions()
    add_time(conditions, time_range)
    add_hosts(conditions, time_range, matchers)
    answer = database.table(
        "SELECT host_id, uniqExact(topic, partition, offset) AS count,"
        " toUnixTimestamp64Milli(min(time)) AS first_unix_milli,"
        " toUnixTimestamp64Milli(max(time)) AS last_unix_milli, argMax(concat(topic, ': ', error), time) AS detail"
        f" FROM dead_letters {conditions.where} GROUP BY host_id LIMIT {_MAX_DEAD_LETTERS}",
        conditions.parameters,
    )
    for host_id, count, first_unix_milli, last_unix_milli, detail in zip(
        texts(answer["host_id"]), answer["count"].to_pylist(), answer["first_unix_milli"].to_pylist(),
        answer["last_unix_milli"].to_pylist(), texts(answer["detail"]), strict=True,
    ):  # fmt: skip
        yield Hole("dead_letters", host_id, count, 0.0, None, first_unix_milli, last_unix_milli, detail)
