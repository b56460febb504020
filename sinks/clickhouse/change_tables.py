"""Runs the statements that change tables; with the embedded engine, only where its disk has room for that."""

import threading
from collections.abc import Mapping
from typing import Any

from clickhouse_connect.driver.client import Client

from icestream.clickhouse import table_definitions
from icestream.clickhouse.client import embedded_folder
from icestream.files.free_space import DiskFullError, require

NEEDED_MB = 64
"""Definitions take less than one. The rest is for what other processes write meanwhile."""


_one_at_a_time = threading.Lock()


def change_tables(client: Client, sql: str, settings: Mapping[str, Any] | None = None) -> None:
    """Runs a statement that makes or changes a table. Raises the client's errors, and DiskFullError: then the table is
    as before, or will be when the engine opens again."""
    folder = embedded_folder(client.uri)
    if folder is None:
        client.command(sql, settings=dict(settings or {}))
        return
    with _one_at_a_time:
        require(folder, NEEDED_MB)
        table_definitions.keep(folder)
        try:
            client.command(sql, settings=dict(settings or {}))
        finally:
            damaged = table_definitions.put_back(folder)
    if damaged:
        raise DiskFullError(f"the disk of {folder} got full while tables were changed ({', '.join(damaged)})")
