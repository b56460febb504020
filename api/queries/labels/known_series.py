"""Labels of series, kept in memory: an ID is a hash of its labels, so these never change."""

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from api.queries.database import Database, texts
from api.queries.selection.conditions import Conditions, add_hours
from api.queries.selection.sample_spans import series_matchers
from api.queries.selection.selector import Matcher
from api.queries.selection.time_range import TimeRange

_MOST = 10_000
"""Series of one question: of more, ClickHouse finds the labels faster."""
_KEPT_BYTES = 16 * 2**20
_LABEL_BYTES = 160
"""What a label takes beside its characters."""
_ANSWERS, _ANSWER_SERIES = 32, 2_000
"""How many answers are kept, and how many series these have at most."""
_ANSWER_S = 10.0
"""How long an answer is kept at most. In this time, one row more and, by a merge of parts, one row less look like no
change of the table."""
_COUNT_S = 1.0
"""How long a number of rows is taken for true. Pages that show labels ask several questions at once, and samples are
seconds old when they are stored."""


@dataclass(frozen=True)
class SeenSeries:
    """A set of labels that had samples of a profile type."""

    profile_type: str
    labels: dict[str, str]


@dataclass(frozen=True)
class _Answer:
    """Which series were seen, for the profile types that they had."""

    series: list[tuple[str, int]]
    table_rows: int
    until: float  # time.monotonic()


class KnownSeries:
    """May be used by many threads."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._labels: dict[int, dict[str, str]] = {}  # the series that were asked for last are at the end
        self._bytes = 0
        self._answers: dict[str, _Answer] = {}  # the oldest first
        self._counted = 0, 0.0  # rows of the table, and until when (time.monotonic()) that is taken for true
        self._lock = threading.Lock()

    def seen(
        self, profile_types: Sequence[str] | None, matchers: Iterable[Matcher], time_range: TimeRange | None
    ) -> list[SeenSeries] | None:
        """Returns the series that match and had samples in the hours of a time range, for each profile type that they
        had. Returns None where only ClickHouse can tell: of all times, by regular expressions, or of too many series.
        Raises ApiError."""
        matchers = series_matchers(matchers)
        if time_range is None or any(each.operator not in ("=", "!=") for each in matchers):
            return None
        series = self._seen(seen_conditions(profile_types, time_range))
        if len(series) > min(_MOST, self._room()):
            return None
        labels = self._labels_of([series_id for _, series_id in series])
        return [
            SeenSeries(profile_type, labels[series_id])
            for profile_type, series_id in series
            if series_id in labels and all(_holds(each, labels[series_id]) for each in matchers)
        ]

    def _seen(self, conditions: Conditions) -> list[tuple[str, int]]:
        """At most _MOST + 1 of those for which the conditions hold."""
        table_rows, now = self._count(), time.monotonic()
        question = repr((conditions.where, conditions.parameters))
        kept = self._answers.get(question)
        if kept and kept.table_rows == table_rows and now < kept.until:
            return kept.series
        answer = self.database.table(
            f"SELECT DISTINCT toString(profile_type) AS type, series_id FROM series_seen {conditions.where}"
            f" LIMIT {_MOST + 1}",
            conditions.parameters,
        )
        series = list(zip(texts(answer["type"]), answer["series_id"].to_pylist(), strict=True))
        with self._lock:
            self._answers.pop(question, None)
            if len(series) <= _ANSWER_SERIES:
                self._answers[question] = _Answer(series, table_rows, now + _ANSWER_S)
            if len(self._answers) > _ANSWERS:
                del self._answers[next(iter(self._answers))]
        return series

    def _count(self) -> int:
        """The number of rows of `series_seen`, which ClickHouse tells in a third of the time that it takes to read
        some."""
        table_rows, until = self._counted
        if (now := time.monotonic()) >= until:
            table_rows = int(self.database.table("SELECT count() AS n FROM series_seen")["n"][0].as_py())
            self._counted = table_rows, now + _COUNT_S
        return table_rows

    def _room(self) -> float:
        """How many series memory holds, if they are as large as those that fill it: of more it would forget each before
        the next question, and read all of them again, which takes far longer than what ClickHouse needs."""
        with self._lock:
            is_full = self._bytes > _KEPT_BYTES / 2
            return _KEPT_BYTES * len(self._labels) / self._bytes if is_full else _MOST

    def _labels_of(self, series_ids: Iterable[int]) -> dict[int, dict[str, str]]:
        """The labels of those series that the store knows."""
        found: dict[int, dict[str, str]] = {}
        with self._lock:
            for series_id in series_ids:
                if (labels := self._labels.pop(series_id, None)) is not None:
                    self._labels[series_id] = found[series_id] = labels
        if unknown := sorted(set(series_ids) - found.keys()):
            read = self._read(unknown)
            found |= read
            self._keep(read)
        return found

    def _keep(self, read: dict[int, dict[str, str]]) -> None:
        with self._lock:
            for series_id in read.keys() - self._labels.keys():
                self._labels[series_id] = read[series_id]
                self._bytes += _bytes(read[series_id])
            while self._bytes > _KEPT_BYTES:
                self._bytes -= _bytes(self._labels.pop(next(iter(self._labels))))

    def _read(self, series_ids: list[int]) -> dict[int, dict[str, str]]:
        conditions = Conditions()
        conditions.add(f"series_id IN {conditions.bind(series_ids, 'Array(UInt64)')}")
        answer = self.database.table(
            "WITH CAST(labels, 'Map(String, String)') AS plain"
            " SELECT series_id, mapKeys(plain) AS names, mapValues(plain) AS label_values"
            f" FROM series {conditions.where}",
            conditions.parameters,
        )
        return dict(zip(answer["series_id"].to_pylist(), labels_of(answer), strict=True))


def seen_conditions(profile_types: Sequence[str] | None, time_range: TimeRange | None) -> Conditions:
    """Conditions on `series_seen`. None: of all profile types, of all times."""
    conditions = Conditions()
    if profile_types is not None:
        conditions.add(f"profile_type IN {conditions.bind(list(profile_types), 'Array(String)')}")
    if time_range is not None:
        add_hours(conditions, time_range)
    return conditions


def labels_of(answer: pa.Table) -> list[dict[str, str]]:
    """Returns the labels of each row, without those that have no value, from its columns `names` and `label_values`."""
    columns = (answer["names"].to_pylist(), answer["label_values"].to_pylist())
    return [
        {_text(name): _text(value) for name, value in zip(names, values, strict=True) if value}
        for names, values in zip(*columns, strict=True)
    ]


def _holds(matcher: Matcher, labels: dict[str, str]) -> bool:
    return (labels.get(matcher.label, "") == matcher.value) is (matcher.operator == "=")


def _bytes(labels: dict[str, str]) -> int:
    return sum(len(name) + len(value) + _LABEL_BYTES for name, value in labels.items())


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
