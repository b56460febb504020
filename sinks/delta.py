"""The Delta tables of a folder (delta.io): opening, appending, and the types of their columns.

Delta has no unsigned integers: columns of uint64 become the same 64 bits as int64, smaller ones become int64. Times in
nanoseconds become int64 nanoseconds since 1970, other times microseconds. Every table has a column of days by which its
files are in folders: `date`, or `month` (its first day).
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from sinks.ranges import MessageRange

BY_DATE = {"samples": "time", "activity": "start_time", "spans": "start_time", "batches": "first_time"}
"""The tables with a `date`, and the column that it is made of."""
BY_MONTH = {"nodes": "last_seen", "locations": "last_seen", "series": "last_seen"}
"""The tables with a `month`."""
_CONFIGURATION: dict[str, str | None] = {
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 7 days",
    "delta.checkpointInterval": "50",
}


class Lake:
    """The tables, each as of the last time that it was opened. Used by one thread."""

    def __init__(self, uri: str, options: dict[str, str] | None = None) -> None:
        self.uri = uri.rstrip("/")
        self._options = options
        self._tables: dict[str, DeltaTable] = {}

    def open(self, name: str) -> DeltaTable | None:
        """Returns a table as it is now; None where there is none yet. Raises deltalake's errors and OSError."""
        if name in self._tables:
            self._tables[name].update_incremental()
            return self._tables[name]
        uri = f"{self.uri}/{name}"
        if not DeltaTable.is_deltatable(uri, self._options):
            return None
        self._tables[name] = DeltaTable(uri, storage_options=self._options)
        return self._tables[name]

    def forget(self) -> None:
        """Gives up all opened tables: after an error they may be behind."""
        self._tables.clear()

    def append(self, name: str, rows: pa.Table, message_range: MessageRange[Any] | None = None) -> None:
        """Appends rows, in Delta's types, in one commit that names the range; makes the table if there is none.

        The table is the one that was opened last. If another process has committed the same partition since then, this
        raises an error. Raises deltalake's errors and OSError.
        """
        table = self._tables.get(name) or self._make(name, rows.schema)
        transactions = [Transaction(_app(message_range), _number(message_range))] if message_range else []
        write_deltalake(
            table,
            rows,
            mode="append",
            schema_mode="merge",  # a table of an earlier version lacks columns
            commit_properties=CommitProperties(app_transactions=transactions),
        )
        self._tables[name] = table

    def _make(self, name: str, schema: pa.Schema) -> DeltaTable:
        """Makes a table. Raises OSError if another process has made it since it was opened, and written to it."""
        table = DeltaTable.create(
            f"{self.uri}/{name}",
            schema,
            mode="ignore",
            partition_by=["date" if name in BY_DATE else "month"],
            configuration=_CONFIGURATION,
            storage_options=self._options,
        )
        if table.version() > 0:
            raise OSError(f"another process has just made the table {name}")
        return table


def has_range(table: DeltaTable | None, message_range: MessageRange[Any]) -> bool:
    """Returns whether the last commit of the range's partition to the table was that range."""
    return table is not None and table.transaction_version(_app(message_range)) == _number(message_range)


def _app(message_range: MessageRange[Any]) -> str:
    return f"range/{message_range.cluster}/{message_range.topic}/{message_range.partition}"


def _number(message_range: MessageRange[Any]) -> int:
    """Returns the nonce of a range: a transaction's version is a number."""
    return int(message_range.offsets.nonce, 16)


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
