"""Tells whether the tables remember enough insert tokens: those of all inserts in the last NEEDED_S seconds."""

import logging
import time

from clickhouse_connect.driver.client import Client

from sinks import metrics
from sinks.clickhouse.cluster import Cluster, database_of_rows

log = logging.getLogger(__name__)

NEEDED_S = 600
"""A range whose process died is written again within this time; until then its token must be remembered."""
_LOOK_S = 600.0


class InsertTokens:
    """Compares the inserts of all processes with the tokens that `batches` remembers. Used by one thread."""

    def __init__(self) -> None:
        self._looked = float("-inf")
        self._warned = False

    def look(self, client: Client, cluster: Cluster) -> None:
        """Sets the metrics now and then; warns in the log if the tokens are too few. Raises the client's errors."""
        if time.monotonic() - self._looked < _LOOK_S:
            return
        self._looked = time.monotonic()
        kept, needed = remembered(client, cluster), inserts(client)
        metrics.INSERT_TOKENS.set(kept)
        metrics.INSERT_TOKENS_NEEDED.set(needed)
        too_few = 0 < kept < needed
        if too_few and not self._warned:
            log.warning(
                "clickhouse: tables remember the tokens of %d inserts, but %d came in the last %d s: after a crash,"
                " rows may be stored twice; run `icestream migrate --insert-tokens %d`",
                kept, needed, NEEDED_S, 2 * needed,
            )  # fmt: skip
        self._warned = too_few


def remembered(client: Client, cluster: Cluster) -> int:
    """Returns how many insert tokens `batches` remembers; 0 if the table does not say."""
    rows = client.query(
        "SELECT toUInt64OrZero(extract(engine_full, 'replicated_deduplication_window = ([0-9]+)'))"
        f" FROM system.tables WHERE database = {database_of_rows(cluster)} AND name = 'batches'"
    ).result_rows
    return int(rows[0][0]) if rows else 0


def inserts(client: Client) -> int:
    """Returns how many inserts into `batches` have messages that collectors published in the last NEEDED_S."""
    rows = client.query(
        "SELECT uniqExact(kind, block) FROM batches WHERE last_time >= now() - INTERVAL 1 DAY"
        f" AND published_time >= now() - INTERVAL {NEEDED_S} SECOND"
    ).result_rows
    return int(rows[0][0])
