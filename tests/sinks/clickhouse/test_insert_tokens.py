"""Whether the tables remember enough insert tokens for the rate of inserts."""

import logging

import pytest
from clickhouse_connect.driver.client import Client
from prometheus_client import REGISTRY

from icestream.clickhouse.client import Clients
from sinks.clickhouse.cluster import ONE_SERVER
from sinks.clickhouse.insert_tokens import NEEDED_S, InsertTokens, inserts, remembered
from sinks.clickhouse.retention import remember_inserts

COLUMNS = "kind, sequence, first_time, last_time, published_time, block"


def add(client: Client, blocks: int, ago_s: int) -> None:
    """Two batches in each of so many inserts."""
    then = f"now64(3) - INTERVAL {ago_s} SECOND"
    client.command(
        f"INSERT INTO batches ({COLUMNS}) SELECT 'samples', {ago_s} * 10000 + number, {then}, {then}, {then},"
        f" concat('{ago_s}/', toString(intDiv(number, 2))) FROM numbers({2 * blocks})"
    )


def test_too_few_insert_tokens_for_the_rate_are_told_by_the_log_and_by_metrics(
    clients: Clients, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    remember_inserts(client, 1000)
    add(client, 5000, NEEDED_S + 3600)
    add(client, 1000, 10)
    assert (remembered(client, ONE_SERVER), inserts(client)) == (1000, 1000)
    with caplog.at_level(logging.WARNING):
        InsertTokens().look(client, ONE_SERVER)
        assert caplog.messages == []
        add(client, 1, 20)
        tokens = InsertTokens()
        tokens.look(client, ONE_SERVER)
        tokens.look(client, ONE_SERVER)
    assert len(caplog.messages) == 1
    assert "--insert-tokens 2002" in caplog.messages[0]
    assert REGISTRY.get_sample_value("icestream_sinks_insert_tokens") == 1000
    assert REGISTRY.get_sample_value("icestream_sinks_insert_tokens_needed") == 1001
