"""A ClickHouse cluster with two shards that are both the embedded engine of this process. Stores batches through its
Distributed tables, asks the API, and prints what it found as JSON. The engine runs no ON CLUSTER, so that is left out.
"""

import json
import sys
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from api.http.app import create_app
from api.settings import ApiSettings
from icestream.clickhouse.client import Clients
from icestream.topics import ACTIVITY, SAMPLES, STACKS
from sinks.clickhouse.cluster import DICTIONARIES, Cluster, distributed_tables
from sinks.clickhouse.migrate import MigrationError, migrate
from sinks.clickhouse.retention import drop_unused_locations, set_retention
from sinks.clickhouse.sink import ClickHouseSink
from sinks.settings import RollupDays
from tests.sinks.messages import START_MS, activity_batch, make_range, sample_batch, stack_batch, tables

HALVES = Cluster("halves", "profiles_local")
START_S = START_MS // 1000
RANGE = f"start={START_S - 86_400}&end={START_S + 2 * 86_400}"  # whole days are read by partition
PATHS = (
    f'/api/v1/merge?selector={{service="checkout",host=~"host-.*"}}&{RANGE}',
    f"/api/v1/top?{RANGE}",
    f"/api/v1/timeline?sum_by=host&{RANGE}",
    f"/api/v1/labels?{RANGE}",
    f"/api/v1/labels/host/values?{RANGE}",
    "/api/v1/profile-types",
    f"/api/v1/traces?{RANGE}",
    f"/api/v1/traces/{1:032x}/cpu",
    f'/api/v1/completeness?selector={{host="host-1"}}&{RANGE}',
)


def main(folder: Path) -> None:
    shard = "<shard><replica><host>127.0.0.1</host><port>9000</port></replica></shard>"
    config = folder / "config.xml"
    config.write_text(
        "<clickhouse><tcp_port>9000</tcp_port>"
        f"<remote_servers><halves>{shard}{shard}</halves></remote_servers></clickhouse>"
    )
    dsn, options = f"chdb://{folder}/db", {"chdb_options": {"config-file": str(config)}}
    default, local, all_shards = (
        Clients(dsn, **options | more) for more in ({}, {"database": HALVES.local}, {"database": "profiles"})
    )
    for name in ("profiles", HALVES.local):
        default.get().command(f"CREATE DATABASE {name}")
    migrate(local.get())
    local.get().command(
        "INSERT INTO schema_migrations SELECT * REPLACE ('halves' AS cluster) FROM schema_migrations LIMIT 1"
    )
    found: dict[str, Any] = {"made": make(all_shards), "made again": make(all_shards)}
    local.get().command("ALTER TABLE spans ADD COLUMN more UInt8")
    found["made after a change"] = make(all_shards)
    local.get().command("ALTER TABLE spans DROP COLUMN more")
    make(all_shards)
    store(all_shards)
    found["rows"] = {
        name: local.get().query(f"SELECT count() FROM {name}").result_rows[0][0]
        for name in ("samples", "trace_samples", "activity", "batches")
    }
    with asking(local) as one, asking(all_shards) as both:
        found["answers"] = {path: [answer(one, path), answer(both, path)] for path in PATHS}
    found["refused"] = refused(local)
    # Changes nothing, or it would fail here: the tables have no ages yet.
    set_retention(all_shards.get(), 0, RollupDays(0, 0, 0))
    drop_unused_locations(all_shards.get(), HALVES)  # there are none
    print(json.dumps(found))


def make(clients: Clients) -> list[str]:
    """Returns the names of the Distributed tables that it made, and what rows go to shards by."""
    made = []
    for statement in distributed_tables(clients.get(), HALVES):
        clients.get().command(statement.replace(" ON CLUSTER 'halves'", ""), settings=DICTIONARIES)
        made.append(statement.rpartition(", 'profiles_local', ")[2].rstrip(")").replace(", cityHash64(", " by "))
    return made


def store(clients: Clients) -> None:
    """Stores what two hosts send, each range twice, and their batches a second time in another range."""
    sink = ClickHouseSink(clients)
    sink.check()
    sink.write(make_range(STACKS, [tables(STACKS, stack_batch(3, ["main", "work"]))]))
    for nonce, host in enumerate(("host-1", "host-2", "host-1", "host-2")):
        for retried in (False, True):
            for topic, batch in ((SAMPLES, sample_batch), (ACTIVITY, activity_batch)):
                messages = [tables(topic, batch(sequence, host=host)) for sequence in (1, 2)]
                sink.write(make_range(topic, messages, retried=retried, nonce=f"{nonce:012x}"))


def asking(clients: Clients) -> TestClient:
    return TestClient(create_app(ApiSettings(), clients), base_url="http://localhost")


def answer(http: TestClient, path: str) -> Any:
    given = http.get(path)
    return given.json() if given.status_code == 200 else given.text


def refused(local: Clients) -> str:
    """Returns why a cluster that has got more shards is refused."""
    try:
        migrate(local.get(), cluster="halves")
    except MigrationError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
