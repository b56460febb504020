"""The Delta tables of a folder (delta.io): opening, appending, and the types of their columns.

Delta has no unsigned integers: columns of uint64 become the same 64 bits as int64, smaller ones become int64. Times in
nanoseconds become int64 nanoseconds since 1970, other times microseconds. Every table has a column of days by which its
files are in folders: `date`, or `month` (its first day).
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError

BY_DATE = {"samples": "time", "activity": "start_time", "spans": "start_time", "batches": "first_time"}
"""The tables with a `date`, and the column that it is made of."""
BY_MONTH = {"nodes": "last_seen", "locations": "last_seen", "series": "last_seen"}
"""The tables with a `month`."""
_CONFIGURATION: dict[str, str | None] = {
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 7 days",
    "delta.checkpointInterval": "50",
}
_TIMEOUTS = {"connect_timeout": "5s", "timeout": "60s", "max_retries": "3", "retry_timeout": "60s"}
"""The limits of requests to an object store. The sinks try again; a sink that waits for minutes would lose its
partitions."""


class Lake:
    """The tables, each as of the last time that it was opened. Used by one thread."""

    def __init__(self, uri: str, options: dict[str, str] | None = None) -> None:
        self.uri = uri.rstrip("/")
        self._options = _TIMEOUTS | (options or {})
        self._tables: dict[str, DeltaTable] = {}

    def open(self, name: str) -> DeltaTable | None:
        """Returns a table as it is now; None where there is none yet. Raises deltalake's errors and OSError."""
        if name in self._tables:
            self._tables[name].update_incremental()
            return self._tables[name]
        try:
            # While DeltaTable.is_deltatable waits for an answer, no other thread of the process can run.
            self._tables[name] = DeltaTable(f"{self.uri}/{name}", storage_options=self._options)
        except TableNotFoundError:
            return None
        return self._tables[name]

    def forget(self) -> None:
        """Gives up all opened tables: after an error they may be behind."""
        self._tables.clear()

    def append(self, name: str, rows: pa.Table, transactions: Sequence[Transaction] = ()) -> None:
        """Appends rows, in Delta's types, in one commit with these transactions; makes the table if there is none.

        The table is the one that was opened last. If another process has committed a transaction of the same name since
        then, this raises an error. Raises deltalake's errors and OSError.
        """
        table = self._tables.get(name) or self._make(name, rows.schema)
        write_deltalake(
            table,
            rows,
            mode="append",
            commit_properties=CommitProperties(app_transactions=list(transactions)),
        )
        self._tables[name] = table

    def replace_all(self, name: str, rows: pa.RecordBatchReader) -> None:
        """Makes these rows, in Delta's types, all that a table has, in one commit; makes the table if there is none.

        The table has no days. Raises deltalake's errors and OSError.
        """
        write_deltalake(
            self._tables.get(name) or f"{self.uri}/{name}",
            rows,
            mode="overwrite",
            schema_mode="overwrite",
            configuration=_CONFIGURATION,
            storage_options=self._options,
        )

    def _make(self, name: str, schema: pa.Schema) -> DeltaTable:
        """Makes a table. Raises OSError if another process has made it since it was opened, and written to it."""
        table = DeltaTable.create(
            f"{self.uri}/{name}",
            schema,
            mode="ignore",
            partition_by=[column_of_days(name)],
            configuration=_CONFIGURATION,
            storage_options=self._options,
        )
        if table.version() > 0:
            raise OSError(f"another process has just made the table {name}")
        return table


def drop_in_delta(name: str, rows: pa.Table) -> None:
    """Makes a table of rows, in Delta's types, in memory, and drops it. Raises deltalake's errors."""
    write_deltalake(f"memory:///{name}", rows, partition_by=[column_of_days(name)], configuration=_CONFIGURATION)


def column_of_days(name: str) -> str:
    """Returns the column by which the files of a table are in folders."""
    return "date" if name in BY_DATE else "month"


def to_delta(name: str, rows: pa.Table) -> pa.Table:
    """Returns the rows for a table in Delta's types, with its `date` or `month`. Raises ValueError (pyarrow's)."""
    columns = {field.name: _column(rows.column(field.name)) for field in rows.schema}
    if name in BY_DATE:
        columns["date"] = _days(rows.column(BY_DATE[name]), "day")
    else:
        columns["month"] = _days(rows.column(BY_MONTH[name]), "month")
    return pa.table(columns)


def _column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if column.type == pa.uint64():
        return pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())
    return column.cast(_type(column.type))


def _days(times: pa.ChunkedArray, unit: str) -> pa.ChunkedArray:
    return pc.cast(pc.floor_temporal(times, unit=unit), pa.date32())


def _type(kind: pa.DataType) -> pa.DataType:
    """Returns the type in Delta tables, also of what a list or a struct holds."""
    if pa.types.is_dictionary(kind):
        return _type(kind.value_type)
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_unsigned_integer(kind) or kind == pa.timestamp("ns", "UTC"):
        return pa.int64()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if pa.types.is_list(kind):
        return pa.list_(_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _type(field.type)) for field in kind])
    return kind
