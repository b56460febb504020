"""The statements that fill tables of rollups."""

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from icestream.clickhouse.client import Clients
from icestream.clickhouse.rollups import LEVELS, OPERATION_LEVELS, Level
from sinks.rollups.operation_tables import trace_ranges
from sinks.rollups.tables import fill, fill_parameters


@pytest.mark.parametrize("level", [*LEVELS, *OPERATION_LEVELS], ids=lambda level: level.name)
def test_a_statement_is_run_with_its_settings(clients: Clients, level: Level) -> None:
    client, builds = clients.get(), {0: 1}
    parameters = {**fill_parameters(level, builds), **trace_ranges(client, 0)[0], "sources": []}
    for statement in fill(level, builds, {"max_threads": 2, "readonly": 1}).values():
        with pytest.raises(DatabaseError, match="readonly"):
            clients.get().command(statement, parameters=parameters)
        clients.discard()
