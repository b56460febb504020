"""A staging table whose rows are a file: the job appends them where the embedded ClickHouse reads them.

To insert rows takes ClickHouse five times as long as to read them from such a file. Only the embedded engine and the
job have the same files.
"""

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from icestream.clickhouse.client import is_embedded

ENGINE = "File(ArrowStream)"


class StagedFile:
    """The file of a table of this engine, which is in the folder of the table and goes with it."""

    def __init__(self, client: Client, table: str) -> None:
        paths = "SELECT data_paths[1] FROM system.tables WHERE database = currentDatabase() AND name = {table:String}"
        self._path = str(client.query(paths, parameters={"table": table}).result_rows[0][0])
        self._stream: pa.RecordBatchStreamWriter | None = None
        pa.ipc.new_stream(self._path, pa.schema([])).close()  # ClickHouse does not read a table without a file

    def append(self, rows: pa.Table) -> None:
        """All rows have one schema. Raises OSError."""
        if self._stream is None:
            self._stream = pa.ipc.new_stream(self._path, rows.schema)
        self._stream.write_table(rows)

    def close(self) -> None:
        """Closes the file. Rows can be read before."""
        if self._stream is not None:
            self._stream.close()


def has_files_of(client: Client) -> bool:
    """Whether this process can write the files of the tables."""
    return is_embedded(client.uri)
