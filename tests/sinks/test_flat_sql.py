"""The SQL of docs/topics.md, which has ClickHouse read icestream.flat by its own Kafka engine."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from icestream.clickhouse.client import connect

PAGE = (Path(__file__).parents[2] / "docs/topics.md").read_text(encoding="utf-8")
QUEUE, TABLE, VIEW, QUERY = re.findall(
    r"^\w.*?;$", "".join(re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)), re.MULTILINE | re.DOTALL
)
RECORD = json.loads(re.findall(r"^```json\n(\{.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0])
_ENGINE = re.compile(r"^ENGINE = Kafka.*;", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def client(engine: str) -> Iterator[Client]:
    admin = connect(engine)
    admin.command("CREATE DATABASE flat_sql_tests")
    client = connect(engine, database="flat_sql_tests")
    yield client
    client.close()
    admin.close()


def test_clickhouse_reads_the_topic_into_a_table(client: Client) -> None:
    """The embedded engine only parses the engine; another one takes what Kafka would bring."""
    assert "Kafka" in str(client.query(f"EXPLAIN AST {QUEUE.rstrip(';')}").result_rows)
    for statement in (_ENGINE.sub("ENGINE = Null", QUEUE), TABLE, VIEW):
        client.command(statement.rstrip(";"))
    negative = RECORD | {"value": -20_000_000, "samples": -2, "operation": ""}
    for record in (RECORD, negative):
        client.command(f"INSERT INTO flat_queue FORMAT JSONEachRow {json.dumps(record)}")
    assert client.query(QUERY.rstrip(";")).result_rows == [("checkout", "parse", 0.4, 40)]
    [labels] = client.query("SELECT DISTINCT labels FROM flat").result_columns
    assert labels == [RECORD["labels"]]
