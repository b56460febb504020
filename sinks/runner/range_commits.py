"""What commits to a Delta table say of ranges of messages: which of them have their rows there.

One commit has the rows of many ranges, and a Delta transaction for each, under the name of the range's partition:
- `range/PARTITION`: the nonce of the range whose rows are all there. If only those of its first days are there, it is
  -1 - nonce, and `days/PARTITION` is the first day whose rows are not there.
So any later owner of a partition can complete its range without the other ranges of the commit. Delta refuses a commit
if another process has meanwhile committed a range of one of the same partitions.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, Transaction

from sinks.runner.ranges import MessageRange
from sinks.tables.arrow import concat

MAX_DAYS = 40
"""Days or months that one commit has rows of: each takes a file, and memory while it is written."""
NO_DAY = 0
ALL_DAYS = 2**31 - 1
_ASKED_AT_ONCE = 8


@dataclass(frozen=True)
class RangeRows:
    """Rows of a range for a table."""

    message_range: MessageRange[Any]
    rows: pa.Table


@dataclass(frozen=True)
class Commit:
    """Rows of at most MAX_DAYS days, and what the table says of their ranges afterwards."""

    rows: pa.Table
    transactions: list[Transaction]


def done_before(table: DeltaTable | None, ranges: Sequence[MessageRange[Any]]) -> dict[str, int]:
    """Returns up to which day (since 1970, exclusive) the table has the rows of each range, by the names of the ranges.

    NO_DAY: none; ALL_DAYS: all. Each answer may take requests to an object store, so several are waited for at once.
    """
    if table is None:
        return {message_range.name: NO_DAY for message_range in ranges}
    with ThreadPoolExecutor(min(len(ranges), _ASKED_AT_ONCE) or 1) as pool:
        days = pool.map(lambda message_range: _done_before(table, message_range), ranges)
        return {message_range.name: day for message_range, day in zip(ranges, days, strict=True)}


def commits(parts: Sequence[RangeRows], column: str, done: dict[str, int]) -> Iterator[Commit]:
    """Yields the commits that add the rows of ranges that the table lacks. `column`: that of days, date32.

    If the rows have more than MAX_DAYS days, a commit has those of a period whose limits do not depend on the rows. So
    an attempt that stopped between two commits is completed by others that write some of its ranges only.
    """
    left = [_from_day(part, column, done.get(part.message_range.name, NO_DAY)) for part in parts]
    left = [(part, days) for part, days in left if part.rows.num_rows]
    if not left:
        return
    all_days = np.unique(np.concatenate([days for _, days in left]))
    if len(all_days) <= MAX_DAYS:
        yield _commit([(part, None) for part, _ in left])
        return
    for period in np.unique(all_days // MAX_DAYS).tolist():
        end = (period + 1) * MAX_DAYS
        rows = [(part, days, (days >= end - MAX_DAYS) & (days < end)) for part, days in left]
        yield _commit(
            [
                (RangeRows(part.message_range, part.rows.filter(pa.array(here))), end if days.max() >= end else None)
                for part, days, here in rows
                if here.any()
            ]
        )


def blocks(rows: pa.Table, column: str) -> Iterator[pa.Table]:
    """Yields rows that belong to no range in blocks of at most MAX_DAYS days or months."""
    days = _days(rows, column)
    periods = np.unique(days, return_inverse=True)[1] // MAX_DAYS
    for period in range(int(periods.max(initial=-1)) + 1):
        yield rows.filter(pa.array(periods == period))


def _done_before(table: DeltaTable, message_range: MessageRange[Any]) -> int:
    version = table.transaction_version(f"range/{_partition(message_range)}")
    if version == _number(message_range):
        return ALL_DAYS
    if version == -1 - _number(message_range):
        return table.transaction_version(f"days/{_partition(message_range)}") or NO_DAY
    return NO_DAY


def _from_day(part: RangeRows, column: str, first: int) -> tuple[RangeRows, np.ndarray]:
    """Returns the rows from a day on, and their days."""
    days = _days(part.rows, column)
    if first == NO_DAY:
        return part, days
    return RangeRows(part.message_range, part.rows.filter(pa.array(days >= first))), days[days >= first]


def _days(rows: pa.Table, column: str) -> np.ndarray:
    days: np.ndarray = rows.column(column).cast(pa.int32()).to_numpy()
    return days


def _commit(parts: Sequence[tuple[RangeRows, int | None]]) -> Commit:
    """`parts`: with the first day whose rows are still to come; None: there are none."""
    transactions = []
    for part, next_day in parts:
        partition, number = _partition(part.message_range), _number(part.message_range)
        if next_day is None:
            transactions.append(Transaction(f"range/{partition}", number))
        else:
            transactions.append(Transaction(f"range/{partition}", -1 - number))
            transactions.append(Transaction(f"days/{partition}", next_day))
    return Commit(concat([part.rows for part, _ in parts]), transactions)


def _partition(message_range: MessageRange[Any]) -> str:
    return f"{message_range.cluster}/{message_range.topic}/{message_range.partition}"


def _number(message_range: MessageRange[Any]) -> int:
    """Returns the nonce of a range: a transaction's version is a number."""
    return int(message_range.offsets.nonce, 16)
