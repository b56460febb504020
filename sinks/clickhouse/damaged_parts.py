"""Notices what the embedded ClickHouse could not write to a full disk, and puts it right while that is possible.

The engine (chDB 26.9) counts failed writes, and ignores them: it takes the damaged part of a table for a good one, and
loses its rows at the next start. But rows that were inserted can be inserted again, and parts that were merged are kept
for 8 minutes. So after a failed write, all new parts are checked. The damaged ones are set aside, and their table is
loaded again: with the parts that were merged or changed, and without the tokens of the inserts that failed.
"""

import logging
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from clickhouse_connect.driver.client import Client

from icestream.clickhouse.client import embedded_folder
from icestream.files.free_space import DiskFullError
from sinks.clickhouse.cluster import identifier

_NEW_S = 600
"""Parts that are not older are checked, because the check may fail as well, and is then repeated."""
_MERGES_END_S = 10.0
_ROUNDS = 5
log = logging.getLogger(__name__)

_one_at_a_time = threading.Lock()
_mended = -1
"""After how many failed writes of this process parts were last checked; -1: not yet."""


class _Part(NamedTuple):
    table: str
    name: str
    path: str


@contextmanager
def whole_parts(client: Client) -> Iterator[None]:
    """Runs inserts. Raises DiskFullError if the engine could not write all of their rows: insert them again, under the
    same tokens. Raises the client's errors."""
    if embedded_folder(client.uri) is None:
        yield
        return
    mend(client)
    before = _failed_writes(client)
    yield
    if _failed_writes(client) != before:
        mend(client, always=True)
        raise DiskFullError(f"the disk of {embedded_folder(client.uri)} got full while rows were inserted")


def mend(client: Client, always: bool = False) -> None:
    """Puts damaged parts right, if a write failed since the last time, or `always`. Raises the client's errors and
    OSError: call it again."""
    global _mended
    with _one_at_a_time:
        failed = _failed_writes(client)
        if failed == _mended and not always:
            return
        if failed:
            log.warning("the disk was full while ClickHouse wrote to it: checks the parts of the last minutes")
        client.command("SYSTEM STOP MERGES")  # also those that could not write, and have not ended
        try:
            if _mended < 0:
                _forget_lost(client)
            _wait_for_merges(client)
            for _ in range(_ROUNDS):
                if not (damaged := _damaged(client)):
                    _mended = failed
                    return
                _replace(client, damaged)
        finally:
            client.command("SYSTEM START MERGES")


def _failed_writes(client: Client) -> int:
    query = "SELECT sum(value) FROM system.events WHERE event = 'WriteBufferFromFileDescriptorWriteFailed'"
    return int(client.query(query).result_rows[0][0])


def _wait_for_merges(client: Client) -> None:
    until = time.monotonic() + _MERGES_END_S
    while client.query("SELECT count() FROM system.merges").result_rows[0][0]:
        if time.monotonic() > until:
            raise DiskFullError("merges do not end, so parts cannot be checked")
        time.sleep(0.05)


def _damaged(client: Client) -> list[_Part]:
    rows = client.query(
        "SELECT table, name, path FROM system.parts"
        " WHERE database = currentDatabase() AND active AND modification_time >= now() - {new:UInt32}",
        parameters={"new": _NEW_S},
    ).result_rows
    return [part for part in map(_Part._make, rows) if not _is_whole(client, part)]


def _is_whole(client: Client, part: _Part) -> bool:
    check = f"CHECK TABLE {identifier(part.table)} PART '{part.name}'"
    return str(client.command(check, settings={"check_query_single_value_result": 1})) == "1"


def _replace(client: Client, damaged: list[_Part]) -> None:
    """Has no need of free space."""
    for table in dict.fromkeys(part.table for part in damaged):
        parts = [part for part in damaged if part.table == table]
        log.error("the disk was full: sets damaged parts of %s aside: %s", table, ", ".join(p.name for p in parts))
        with _unloaded(client, table):
            for part in parts:
                _set_aside(Path(part.path))
            _forget_tokens(Path(parts[0].path).parent, {part.name for part in parts})


@contextmanager
def _unloaded(client: Client, table: str) -> Iterator[None]:
    client.command(f"DETACH TABLE {identifier(table)} SYNC")
    try:
        yield
    finally:
        client.command(f"ATTACH TABLE {identifier(table)}")


def _set_aside(part: Path) -> None:
    aside = part.parent / "detached" / f"broken_{part.name}"
    shutil.rmtree(aside, ignore_errors=True)  # of an earlier merge of the same parts
    part.rename(aside)


def _forget_lost(client: Client) -> None:
    """Forgets the tokens of parts that the engine found damaged when it opened: they may be inserted again."""
    rows = client.query(
        "SELECT table, name, path FROM system.detached_parts"
        " WHERE database = currentDatabase() AND reason = 'broken-on-start'"
    ).result_rows
    lost = [_Part(*row) for row in rows]
    for table in dict.fromkeys(part.table for part in lost):
        parts = [part for part in lost if part.table == table]
        with _unloaded(client, table):
            names = {part.name.removeprefix("broken-on-start_") for part in parts}
            _forget_tokens(Path(parts[0].path).parents[1], names)


def _forget_tokens(table: Path, parts: set[str]) -> None:
    """Removes the insert tokens of these parts from the lines `1 PART TOKEN`, and a line that is not whole."""
    of_parts = tuple(f"1\t{part}\t".encode() for part in parts)
    for path in table.glob("deduplication_logs/deduplication_log_*.txt"):
        with open(path, "r+b") as file:
            lines = file.readlines()
            kept = [line for line in lines if line.endswith(b"\n") and not line.startswith(of_parts)]
            if kept != lines:  # written in place: it is shorter
                file.seek(0)
                file.write(b"".join(kept))
                file.truncate()
