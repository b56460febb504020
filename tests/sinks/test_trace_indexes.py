"""Builds of operations and thinning divide the rows of an hour by traces: each reads its own share."""

import re

import pytest
from clickhouse_connect.driver.client import Client

from sinks.rollups.operation_tables import OF_TRACES, between
from tests.api.queries.rollup_store import T0

ROWS = 200_000


@pytest.mark.parametrize("table", ["entry_spans", "span_operations"])
def test_who_reads_a_range_of_traces_reads_a_share_of_the_granules(client: Client, table: str) -> None:
    client.command(
        f"INSERT INTO {table} (service, start_time, trace_id, span_id, operation)"
        f" SELECT 'shop', fromUnixTimestamp({T0}), reinterpretAsFixedString(sipHash128(number)), 'span', 'GET /'"
        f" FROM numbers({ROWS})"
    )
    traces = {"first_trace": "40" + 15 * "00", "last_trace": "50" + 15 * "00"}
    plan = client.query(
        f"EXPLAIN indexes = 1 SELECT count() FROM {table} {between(str(T0), str(T0 + 3600))} AND {OF_TRACES}",
        parameters=traces,
    )
    text = "\n".join(row[0] for row in plan.result_rows)
    chosen, of_all = map(int, re.findall(r"Granules: (\d+)/(\d+)", text)[-1])
    assert of_all >= ROWS // 8192
    assert chosen <= of_all // 16 + 2
