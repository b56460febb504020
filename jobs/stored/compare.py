"""Compares the rows of a slice that are stored with those that were recomputed, by minute and host.

A row is compared as a whole, its trace, operation and stack included: its hash stands for all that operators compute of
it. The hashes of a minute are summed up, those of samples times their count and their value. So a sample that got its
trace by a correction equals one that had it from the start.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobs.staging.staging import TIMES, Staging
from jobs.time_range import HostMinute, within

_WEIGHTS = {"samples": ("count", "value"), "activity": ("1",)}
"""What the hash of a row is multiplied with."""
_NOT_COMPARED = ("batch_run", "batch_sequence", "count", "value")
_COPIES = {"samples": "trace_samples"}
"""The tables that views fill with some of the rows of another."""
_NOT_COPIED = ("request_labels",)
_TRACED = "trace_id != toFixedString('', 16)"
Sums = dict[HostMinute, tuple[Any, ...]]


@dataclass(frozen=True)
class Compared:
    """The minutes of hosts of a slice that were recomputed."""

    minutes: set[HostMinute]
    wrong: set[HostMinute]
    """What is stored differs from what was recomputed."""
    unknown: set[HostMinute]
    """Wrong minutes, in which stored samples have traces that the source knows nothing of: it lacks their activity."""


def compare(staging: Staging, name: str, stored: str = "") -> Compared:
    """Compares samples or activity. `stored`: the table that has what is stored, by default the live one."""
    live = stored or name
    recomputed = staging.of_recomputed_batches(name)
    expected = _sums(staging, name, staging.table(name))
    found = _sums(staging, name, live, recomputed)
    wrong = {minute for minute, sums in expected.items() if found.get(minute) != sums}
    if name in _COPIES and not stored:
        original = _sums(staging, name, name, _TRACED, _NOT_COPIED)
        copied = _sums(staging, name, _COPIES[name], without=_NOT_COPIED)
        wrong |= {minute for minute in expected if original.get(minute) != copied.get(minute)}
    unknown = _unknown(staging, live, recomputed, wrong) if name == "samples" and wrong else set()
    return Compared(set(expected), wrong, unknown)


def _sums(staging: Staging, name: str, table: str, condition: str = "1", without: Sequence[str] = ()) -> Sums:
    """Returns the sums of the rows of each minute of a host in a table. `without`: columns that do not count."""
    row = [column for column in staging.filled(name) if column not in (*_NOT_COMPARED, *without)]
    if not row:
        return {}  # nothing was recomputed
    sums = ", ".join(f"sum(cityHash64({', '.join(row)}) * {weight})" for weight in _WEIGHTS[name])
    rows = staging.client.query(
        f"SELECT host_id, {_minute(name)} AS minute, {sums} FROM {table}"
        f" WHERE {within(TIMES[name])} AND {condition} GROUP BY ALL",
        parameters=staging.time_range.parameters,
    ).result_rows
    return {HostMinute(host_id, minute): tuple(sums) for host_id, minute, *sums in rows}


def _unknown(staging: Staging, live: str, recomputed: str, wrong: set[HostMinute]) -> set[HostMinute]:
    minute = _minute("samples")
    rows = staging.client.query(
        f"SELECT DISTINCT host_id, minute FROM (SELECT host_id, {minute} AS minute, trace_id FROM {live}"
        f" WHERE {within('time')} AND {recomputed} AND {_TRACED}"
        f" AND {in_minutes(staging, 'samples', staging.fill_minutes(wrong))}"
        " GROUP BY ALL HAVING sum(count) != 0 OR sum(value) != 0)"
        f" WHERE (host_id, minute, trace_id) NOT IN"
        f" (SELECT host_id, {minute}, trace_id FROM {staging.table('samples')} WHERE {_TRACED})",
        parameters=staging.time_range.parameters,
    ).result_rows
    return {HostMinute(*row) for row in rows}


def in_minutes(staging: Staging, name: str, minutes: str) -> str:
    """Returns the SQL condition that a row is in one of the minutes of hosts in the table `minutes`."""
    return f"(host_id, {_minute(name)}) {staging.globally}IN (SELECT host, minute FROM {minutes})"


def _minute(name: str) -> str:
    """Returns the SQL expression of a row's minute."""
    return f"toInt64(toUnixTimestamp(toStartOfMinute({TIMES[name]})))"
