"""Queries of ClickHouse within the limits of one query, answered as Arrow tables."""

import copy
import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from clickhouse_connect.driver.exceptions import ClickHouseError, DatabaseError, OperationalError

from api.errors import ApiError, bad_request, too_large, unavailable
from api.metrics import CLICKHOUSE_ERRORS, CLICKHOUSE_SECONDS
from api.settings import ApiSettings
from icestream.clickhouse.client import Clients, is_embedded

_log = logging.getLogger(__name__)

# Codes of ClickHouse's src/Common/ErrorCodes.cpp.
_TOO_LARGE = {
    158: "it reads more rows than one query may",
    159: "it takes longer than one query may",
    160: "it takes longer than one query may",
    241: "it needs more memory than one query may",
    307: "it reads more bytes than one query may",
    396: "its answer has more rows than one query's may",
}
_BAD_REGEX = 427
_BAD_ARGUMENTS = 36  # replaceRegexpOne of a bad regular expression (api/queries/selection/conditions.py)
_BUSY = 202
_FEW_CPUS = 4
_ONE_LEVEL = ", group_by_two_level_threshold = 0"
_ALL_IN_MEMORY = ", group_by_two_level_threshold_bytes = 0"
"""Else, from 100,000 groups or 50 MB on, ClickHouse merges those of its threads in parallel, and answers in 256 small
blocks. That takes longer than few threads gain: sums of 200,000 stacks take 230 ms instead of 180. The limit by bytes
stays where there may be any number of groups, because only such groups can go to a disk when memory runs out."""
_FEW_ROWS_A_THREAD = ", merge_tree_min_rows_for_concurrent_read = 1, merge_tree_min_bytes_for_concurrent_read = 1"
"""Else one thread reads up to 160,000 rows of a table: many, if each has sketches."""
_NO_TABLE = {60: "a table is missing", 81: "the database is missing", 47: "a column is missing"}


def texts(column: pa.ChunkedArray | pa.Array) -> list[str]:
    """A column of strings as text. ClickHouse's strings are any bytes; those that are not UTF-8 are replaced."""
    return [value.decode(errors="replace") for value in column.to_pylist()]


class Database:
    """May be used by many threads."""

    def __init__(self, clients: Clients, settings: ApiSettings) -> None:
        self._clients = clients
        self._lock: threading.Lock | None = None
        self.exact_requests = settings.api_exact_requests
        """Up to so many requests, their rows are read (api/queries/operations/recent.py)."""
        self.request_labels = settings.request_label_names()
        """The labels that requests have of their processes."""
        # This becomes SQL text, so it may contain nothing but our own numbers.
        self._limits = (
            f" SETTINGS max_execution_time = {int(settings.api_max_seconds)}, timeout_overflow_mode = 'throw',"
            f" max_rows_to_read = {int(settings.api_max_rows)}, read_overflow_mode = 'throw',"
            f" max_memory_usage = {int(settings.api_max_memory)},"
            " output_format_arrow_compression_method = 'none', output_format_arrow_string_as_string = 0,"
            # On a cluster with several shards, a subquery runs once, over all of them.
            " distributed_product_mode = 'global'"
        )
        self._all_in_memory = ""
        if is_embedded(clients.dsn) and (os.cpu_count() or 1) <= _FEW_CPUS:
            self._limits += _ONE_LEVEL
            self._all_in_memory = _ALL_IN_MEMORY

    def table(
        self,
        sql: str,
        parameters: Mapping[str, Any] | None = None,
        has_few_groups: bool = False,
        reads_slow_rows: bool = False,
    ) -> pa.Table:
        """Returns the answer to a SELECT. `has_few_groups`: they fit into memory, or it is refused anyway.
        `reads_slow_rows`: some thousand of them are worth another thread. Raises ApiError."""
        limits = self._limits + (self._all_in_memory if has_few_groups else "")
        limits += _FEW_ROWS_A_THREAD if reads_slow_rows else ""
        try:
            with self._unlocked(), CLICKHOUSE_SECONDS.time(), self._clients.borrowed() as client:
                data = client.raw_query(sql + limits, parameters=dict(parameters or {}), fmt="ArrowStream")
                return pa.ipc.open_stream(data).read_all()
        except (ClickHouseError, pa.ArrowException, OSError) as error:
            CLICKHOUSE_ERRORS.inc()
            raise _as_api_error(error) from error

    def raw(self, sql: str, parameters: Mapping[str, Any] | None, settings: str | None) -> bytes:
        """Returns the answer as JSONCompact, within the limits of a query and with these settings; with None, without
        either, as ClickHouse answers by default. Raises ApiError where a limit is exceeded or ClickHouse is away, and
        else ClickHouseError: what is wrong with the statement."""
        limited, fmt = (sql, None) if settings is None else (f"{sql}{self._limits}{settings}", "JSONCompact")
        try:
            with CLICKHOUSE_SECONDS.time(), self._clients.borrowed() as client:
                answer: bytes = client.raw_query(limited, parameters=dict(parameters or {}), fmt=fmt)
                return answer
        except ClickHouseError as error:
            code = getattr(error, "code", None)
            if code is None or code in _TOO_LARGE or code == _BUSY:
                CLICKHOUSE_ERRORS.inc()
                raise _as_api_error(error) from error
            raise
        except OSError as error:
            CLICKHOUSE_ERRORS.inc()
            raise _as_api_error(error) from error

    def insert(self, table: str, columns: Mapping[str, Sequence[Any]]) -> None:
        """Inserts rows, given as columns. Raises ApiError."""
        try:
            with self._clients.borrowed() as client:
                client.insert(table, list(columns.values()), list(columns), column_oriented=True)
        except (ClickHouseError, OSError) as error:
            CLICKHOUSE_ERRORS.inc()
            raise _as_api_error(error) from error

    def letting_go_of(self, lock: threading.Lock) -> "Database":
        """Returns the same database for callers that have the lock: they do not have it while a query runs."""
        database = copy.copy(self)
        database._lock = lock
        return database

    @contextmanager
    def _unlocked(self) -> Iterator[None]:
        if self._lock is None:
            yield
            return
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()

    def ready(self) -> str | None:
        """Returns why the tables cannot be read, or None if they can."""
        try:
            self.table("SELECT 1 FROM samples LIMIT 0")
        except ApiError as error:
            return error.message
        return None


def _as_api_error(error: Exception) -> ApiError:
    code = getattr(error, "code", None)
    if code in _TOO_LARGE:
        return too_large(f"the query is too large: {_TOO_LARGE[code]}")
    if code == _BAD_REGEX or (code == _BAD_ARGUMENTS and "replaceRegexp" in str(error)):
        reason = re.search(r"re2 pattern: (.{1,300}?): In scope", str(error), re.DOTALL)
        return bad_request(
            "bad_selector",
            f"a regular expression of the selector cannot be compiled{f': {reason[1]}' if reason else ''}",
            "use RE2 syntax, github.com/google/re2/wiki/Syntax; a literal ( [ { . * + ? | \\ needs a backslash before",
        )
    if code == _BUSY:
        return unavailable("ClickHouse is busy with other queries", retry_after_s=2)
    if code in _NO_TABLE:
        _log.error("%s", error)
        return unavailable(f"not set up: {_NO_TABLE[code]} in ClickHouse", "run: icestream migrate", retry_after_s=10)
    _log.error("ClickHouse: %s", error)
    if isinstance(error, DatabaseError) and not isinstance(error, OperationalError) and code is not None:
        return unavailable(f"ClickHouse could not answer (its error {code})", "see the log of the API")
    return unavailable("ClickHouse cannot be reached", "see the log of the API, and /readyz")
