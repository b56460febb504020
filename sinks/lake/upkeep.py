"""Keeps Delta tables fit for years: joins small files, deletes old days, and deletes files that nothing refers to.

Every process with a lake sink does all of it. Where two do the same at once, Delta refuses the second, which is no
harm.
"""

import logging
import time
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from sinks.lake.delta import BY_DATE, BY_MONTH, Lake, column_of_days

log = logging.getLogger(__name__)

SMALL_FILES = 32
"""The files of a day or month are joined once this many are below half of FILE_BYTES."""
FILE_BYTES = 128 << 20
COMPACT_S = 60.0
KEEP_REMOVED_HOURS = 168
"""How long files are kept that no longer belong to a table, for readers that still use them."""
_LEAST_BATCH_DAYS = 8
"""`batches` is kept for at least this long: Kafka could deliver the messages of these days again."""


def compact(lake: Lake, small_files: int = SMALL_FILES, most_s: float = COMPACT_S) -> None:
    """Joins the files of each day or month that has `small_files` small ones. Raises deltalake's errors and OSError.

    It begins no other day after `most_s` seconds, because the sink reads nothing meanwhile.
    """
    end = time.monotonic() + most_s
    for table, column in _tables(lake):
        for day in _days_of_small_files(table, column, small_files):
            if time.monotonic() >= end:
                return
            try:
                done: dict[str, Any] = table.optimize.compact(
                    partition_filters=[(column, "=", str(day))], target_size=FILE_BYTES
                )
            except CommitFailedError as error:
                log.info("%s of %s: joined by another process: %s", table.table_uri, day, error)
                break
            log.info(
                "%s of %s: %s files joined into %s",
                table.table_uri, day, done["numFilesRemoved"], done["numFilesAdded"],
            )  # fmt: skip


def delete_old_days(lake: Lake, days: int, today: date) -> None:
    """Deletes days before the last `days` (0: none), and then files that were replaced a week ago and old log entries.

    A month of nodes, locations and series goes two days after all of its days. Raises deltalake's errors and OSError.
    """
    for table, column in _tables(lake):
        kept = max(days, _LEAST_BATCH_DAYS) if table.table_uri.rstrip("/").endswith("/batches") else days
        first = today - timedelta(days=kept)
        if column == "month":
            first = (first - timedelta(days=2)).replace(day=1)
        try:
            if days and any(day < first for day in _days(table, column)):
                table.delete(f"{column} < '{first}'")
            table.vacuum(retention_hours=KEEP_REMOVED_HOURS, dry_run=False)
            table.create_checkpoint()
            table.cleanup_metadata()
        except CommitFailedError as error:
            log.info("%s: cleaned by another process: %s", table.table_uri, error)


def _tables(lake: Lake) -> Iterator[tuple[DeltaTable, str]]:
    """Yields the tables that there are, and the names of their columns of days."""
    for name in (*BY_DATE, *BY_MONTH):
        if (table := lake.open(name)) is not None:
            yield table, column_of_days(name)


def _files(table: DeltaTable, column: str) -> tuple[list[date], list[int]]:
    """Returns the day and the size of each file."""
    actions = table.get_add_actions(flatten=True)
    return list(actions[f"partition.{column}"].to_pylist()), list(actions["size_bytes"].to_pylist())


def _days(table: DeltaTable, column: str) -> set[date]:
    return set(_files(table, column)[0])


def _days_of_small_files(table: DeltaTable, column: str, small_files: int) -> list[date]:
    counts: dict[date, int] = {}
    for day, size in zip(*_files(table, column), strict=True):
        counts[day] = counts.get(day, 0) + (size < FILE_BYTES // 2)
    return sorted(day for day, count in counts.items() if count >= small_files)
