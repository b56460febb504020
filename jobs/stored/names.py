"""Series, nodes, locations and spans of a slice in ClickHouse: those that a table lacks, and better names, are added.

If several rows have one key, the job copies the row that the live table would keep.
"""

from collections import Counter

from jobs.staging.staging import Staging
from sinks.rollups import changes

LATE_COLUMNS = ("operation", "status")
"""Columns of a span that may become known after the span itself."""
_KEYS = {"series": ("series_id", "last_seen DESC"), "nodes": ("node_id", "last_seen DESC"),
         "locations": ("location_id", "version DESC")}  # fmt: skip
"""What a row is recognised by, and which one of several comes first."""


def add_names(staging: Staging, dry_run: bool = False) -> "Counter[str]":
    """Returns how many rows each table gets, or would get. A thinned day gets no spans."""
    added: Counter[str] = Counter()
    for name in ("series", "nodes", "spans", "locations"):
        if staging.filled(name) and not (name == "spans" and staging.thinned_days()):
            new = _new_spans(staging) if name == "spans" else _new(staging, name)
            added[name] = staging.count(new)
            if added[name] and not dry_run:
                _insert(staging, name, new)
    return added


def _new(staging: Staging, name: str) -> str:
    """Makes a table of the staged rows that the live table lacks, and returns its name."""
    key, order = _KEYS[name]
    staged = staging.table(name)
    live = f"FROM {name} WHERE {key} {staging.globally}IN (SELECT {key} FROM {staged})"
    lacking = f"{key} NOT IN (SELECT {key} {live})"
    if name == "locations":
        better = (
            f"SELECT {key}, max(version) FROM (SELECT {key}, version, true AS staged FROM {staged}"
            f" UNION ALL SELECT {key}, version, false {live})"
            f" GROUP BY {key} HAVING maxIf(version, staged) > maxIf(version, NOT staged)"
        )
        lacking = f"({lacking} OR ({key}, version) IN ({better}))"
    one_by = f"SELECT * FROM {staged} ORDER BY {order} LIMIT 1 BY {key}"
    return staging.make_of(f"SELECT * FROM ({one_by}) WHERE {lacking}", f"new_{name}")


def _insert(staging: Staging, name: str, new: str) -> None:
    hours = _hours_of_spans(staging, new) if name == "spans" else set()
    _note_spans(staging, hours)  # if the job ends in the middle, these spans are not new when it goes on
    if name == "spans":
        staging.refuse_thinned()
    staging.change(f"INSERT INTO {name} SELECT * FROM {new}", "1")
    _note_spans(staging, hours)


def _new_spans(staging: Staging) -> str:
    """Returns what has the staged spans that the live table lacks, or only their operation or status: all of them, or a
    table that it makes.

    Where it says something else than the staged span, it is left alone: the span was reported twice, and this is what
    was stored last. It may say so in another slice of the day, as it keeps one row of a span for each day.
    """
    (day,) = staging.time_range.days()
    span = "trace_id, span_id"
    whole = ", ".join((span, *LATE_COLUMNS))
    # The live table is asked once: it has as many spans as the staged one, if nothing is new.
    live = staging.make_of(
        f"SELECT {whole} FROM spans WHERE toDate(start_time) = '{day}'"
        f" AND ({span}) {staging.globally}IN (SELECT {span} FROM {staging.table('spans')})", "live_spans"
    )  # fmt: skip
    if not staging.count(live):
        return staging.spans
    agrees = [
        f"(({span}) NOT IN (SELECT {span} FROM {live} WHERE {column} != '')"
        f" OR ({span}, {column}) IN (SELECT {span}, {column} FROM {live}))"
        for column in LATE_COLUMNS
    ]
    condition = f"({whole}) NOT IN (SELECT {whole} FROM {live}) AND {' AND '.join(agrees)}"
    return staging.make_of(f"SELECT * FROM {staging.spans} WHERE {condition}", "new_spans")


def _hours_of_spans(staging: Staging, table: str) -> set[int]:
    """Returns the hours whose rollups depend on the spans in a table."""
    bounds = "intDiv(toUnixTimestamp(start_time), 3600), intDiv(toUnixTimestamp(end_time), 3600)"
    return changes.hours_of_spans(staging.client.query(f"SELECT DISTINCT {bounds} FROM {table}").result_rows)


def _note_spans(staging: Staging, hours: set[int]) -> None:
    if hours:
        staging.change(changes.note_requests_sql(hours), "1")
