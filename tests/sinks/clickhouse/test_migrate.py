"""Tables are made once, and by nothing else."""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from icestream.clickhouse.client import Clients
from icestream.topics import ACTIVITY, SAMPLES, STACKS
from sinks.clickhouse import retention
from sinks.clickhouse.cluster import ONE_SERVER, Cluster, ClusterError, create_like, on_cluster
from sinks.clickhouse.migrate import FOLDER, MigrationError, check, migrate, schema_files, shown
from sinks.clickhouse.sink import ClickHouseSink
from sinks.settings import RollupDays
from tests.last_release import unpack_last_release
from tests.sinks.messages import START_MS, activity_batch, make_range, sample_batch, stack_batch, tables
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

NOW = {"mutations_sync": 2}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the schema, with a later change."""
    shutil.copytree(FOLDER, tmp_path / "schema")
    (tmp_path / "schema" / "changes" / "0001_more.sql").write_text(
        "-- why\nCREATE TABLE IF NOT EXISTS more (a UInt8) ENGINE = Memory;\n"
        + "".join(
            f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS more UInt64;\n"
            for table in ("samples", "series", "nodes", "locations", "activity", "spans", "batches", "trace_samples")
        )
    )
    return tmp_path / "schema"


def all_statements() -> list[str]:
    return [sql for file in schema_files() for sql in file.statements]


def test_each_file_is_run_once(empty: Clients) -> None:
    assert migrate(empty.get()) == [file.name for file in schema_files()]
    assert migrate(empty.get()) == []
    check(empty.get(), empty.dsn)


def test_a_statement_that_ran_without_its_record_does_no_harm(empty: Clients, folder: Path) -> None:
    made = migrate(empty.get(), folder)
    empty.get().command("TRUNCATE TABLE schema_migrations")
    assert migrate(empty.get(), folder) == made


def test_later_changes_are_applied_and_their_absence_is_told(empty: Clients, folder: Path) -> None:
    migrate(empty.get())
    with pytest.raises(MigrationError, match=r"0001_more missing.*icestream migrate"):
        check(empty.get(), empty.dsn, folder)
    assert migrate(empty.get(), folder) == ["0001_more"]
    check(empty.get(), empty.dsn, folder)


def test_a_file_that_was_released_is_as_it_was(tmp_path: Path) -> None:
    unpack_last_release(tmp_path, "sinks/schema")
    now = {file.name: file.checksum for file in schema_files()}
    released = {file.name: file.checksum for file in schema_files(tmp_path / "sinks/schema")}
    assert released
    assert {name: now.get(name) for name in released} == released


def test_later_changes_come_after_all_else_in_new_tables(empty: Clients, folder: Path) -> None:
    assert migrate(empty.get(), folder)[-1] == "0001_more"
    assert empty.get().query("SELECT count() FROM spans WHERE more = 0").result_rows == [(0,)]


def test_a_file_that_has_changed_is_refused_a_changed_comment_is_not(empty: Clients, folder: Path) -> None:
    """So are tables of before these files: their records have other checksums under the same names."""
    migrate(empty.get(), folder)
    stacks = folder / "stacks.sql"
    stacks.write_text("-- another comment\n" + stacks.read_text().replace("    node_id  ", "    node_id     "))
    assert migrate(empty.get(), folder) == []
    stacks.write_text(stacks.read_text().replace("UInt64 CODEC", "UInt128 CODEC"))
    for refused in (lambda: check(empty.get(), empty.dsn, folder), lambda: migrate(empty.get(), folder)):
        with pytest.raises(MigrationError, match=r"another schema \(stacks\).*a new data folder"):
            refused()


def test_parts_of_this_version_work_with_the_tables_of_the_next_one(empty: Clients, folder: Path) -> None:
    migrate(empty.get(), folder)
    check(empty.get(), empty.dsn)
    assert migrate(empty.get()) == []
    for topic, message in (
        (STACKS, stack_batch()), (SAMPLES, sample_batch(1)), (SAMPLES, sample_batch(1)), (ACTIVITY, activity_batch(1)),
    ):  # fmt: skip
        sink = ClickHouseSink(empty)
        sink.check()
        sink.write(make_range(topic, [tables(topic, message)]))
    counts = "SELECT (SELECT count() FROM samples), (SELECT count() FROM activity), (SELECT count() FROM batches)"
    assert empty.get().query(counts).result_rows == [(5, 3, 2)]


FIRST_RUN = """
import os, sys
from icestream.clickhouse.client import Clients
from icestream.topics import SAMPLES
from sinks.clickhouse.sink import ClickHouseSink
from sinks.clickhouse.migrate import migrate
from tests.last_release import unpack_last_release
from tests.sinks.messages import make_range, sample_batch, tables

class Mortal(ClickHouseSink):
    def _insert(self, table, *more):
        if table == "batches":
            os._exit(9)
        super()._insert(table, *more)

clients = Clients(sys.argv[1])
migrate(clients.get())
Mortal(clients).write(make_range(SAMPLES, [tables(SAMPLES, sample_batch(1))], retried=False))
"""


def test_a_block_of_the_process_that_made_the_tables_is_known_to_the_next_one(tmp_path: Path) -> None:
    dsn = f"chdb://{tmp_path}/chdb"
    first = subprocess.run([sys.executable, "-c", FIRST_RUN, dsn], cwd=FOLDER.parents[1])
    assert first.returncode == 9
    query = "SELECT (SELECT count() FROM samples), (SELECT count() FROM trace_samples)"
    second = (
        FIRST_RUN.replace('if table == "batches"', "if False").replace("retried=False", "retried=True")
        + f"print(clients.get().query({query!r}).result_rows[0])"
    )
    done = subprocess.run([sys.executable, "-c", second, dsn], cwd=FOLDER.parents[1], capture_output=True, text=True)
    assert done.stdout.strip() == "(5, 2)", done.stderr


def test_a_statement_ends_before_a_comment(tmp_path: Path) -> None:
    (tmp_path / "two.sql").write_text("-- why\nSELECT 1;  -- one\n\nSELECT ';' -- two\n;\n-- the end\n")
    (file,) = schema_files(tmp_path)
    assert file.statements == ["-- why\nSELECT 1", "SELECT ';' -- two"]


@pytest.mark.parametrize("cluster", [Cluster("it's"), Cluster("it's", "my_local")])
def test_on_a_cluster_every_statement_runs_on_all_hosts_and_every_table_is_replicated(
    clients: Clients, cluster: Cluster
) -> None:
    """The embedded engine reads the statements; running them takes Keeper and servers."""
    assert on_cluster("SELECT 1", ONE_SERVER) == "SELECT 1"
    with pytest.raises(ClusterError, match="RENAME"):
        on_cluster("RENAME TABLE a TO b", cluster)
    in_database = "SELECT name FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree'"
    tables = {name for (name,) in clients.get().query(in_database).result_rows}
    database = f"`{cluster.local}`." if cluster.local else ""
    replicated = set()
    for statement in all_statements():
        sql = on_cluster(statement, cluster, tables)
        tree = str(clients.get().command(f"EXPLAIN AST {sql}"))
        assert " ON CLUSTER 'it\\'s'" in sql
        assert "non_replicated" not in sql
        if "CREATE TABLE" in sql:
            table = re.findall(rf"EXISTS {database}(\w+)", sql)[0]
            path = f"MergeTree('/clickhouse/tables/{{shard}}/{{database}}/{table}', '{{replica}}'"
            assert path in sql
            assert re.search(r"Function Replicated\w*MergeTree", tree)
            replicated.add(table)
        if f"EXISTS {database}activity " in sql:
            like = create_like(sql, "activity", "another", cluster)
            assert like.startswith(f"CREATE TABLE {database}another ON CLUSTER 'it\\'s' (")
            assert path not in like
            assert path.replace("/activity'", "/another'") in like
        if "CREATE VIEW" in sql:  # of the tables that queries read
            assert not cluster.local or cluster.local not in sql
            continue
        if "SELECT" in sql:
            assert re.search(rf"FROM {database}\w+\b", sql)
        if "VIEW" in sql:
            assert f"TO {database}" in sql
        if " AS operation_hours" in statement:
            assert f" AS {database}operation_hours" in sql
    assert tables - {"schema_migrations"} == replicated


def test_a_table_is_made_with_settings_of_tables_only(client: Client) -> None:
    """ClickHouse before 25.5 may not read settings of queries there: 24.8 does not."""
    of_tables = {name for (name,) in client.query("SELECT name FROM system.merge_tree_settings").result_rows}
    makes_tables = [sql for sql in all_statements() if "CREATE TABLE" in sql]
    used = {name for sql in makes_tables for name in re.findall(r"\b(\w+) = ", sql.partition("\nSETTINGS ")[2])}
    assert "non_replicated_deduplication_window" in used
    assert used <= of_tables


def test_retention_is_set_changed_and_taken_away(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    def ttl(table: str) -> str:
        create = clients.get().query(f"SELECT create_table_query FROM system.tables WHERE database = currentDatabase()"
                                     f" AND name = '{table}'").result_rows[0][0]  # fmt: skip
        return str(create).partition(" TTL ")[2].partition(" SETTINGS")[0]

    client, by_day = clients.get(), RollupDays(0, 7, 60)
    retention.set_retention(client, None)
    assert (ttl("samples"), retention.sample_days(client)) == ("", 0)  # the sinks drop them
    retention.set_retention(client, None, new=True)
    assert (ttl("trace_samples"), retention.sample_days(client)) == ("toDateTime(time) + toIntervalDay(14)", 14)
    assert ttl("kept_traces") == "toDateTime(day) + toIntervalDay(16)"
    assert ttl("recent_operations") == "toDateTime(start_time) + toIntervalDay(3)"
    retention.set_retention(clients.get(), 5)
    assert ttl("batches").endswith("toIntervalDay(8)")
    assert ttl("service_stack_hours").endswith("toIntervalDay(182)")
    assert ttl("nodes").endswith("toIntervalDay(1097)")  # of the rollups by day
    retention.set_retention(client, None, by_day)
    assert [retention.kept_days(client, "rollup_builds", level) for level in ("minute", "hour", "day")] == [0, 7, 60]
    assert [retention.kept_days(client, "rollup_builds", f"operation {unit}") for unit in ("hour", "day")] == [9, 60]
    assert [ttl(table) for table in ("service_minutes", "operation_minutes", "nodes")] == ["", "", ""]
    assert ttl("operation_hours").endswith("toIntervalDay(11)")  # four days and two more than rows
    assert retention.sample_days(client) == 5
    with monkeypatch.context() as patch:
        patch.setattr(client, "command", None)  # nothing is changed that is so already
        retention.set_retention(client, 5, by_day)
    retention.set_retention(clients.get(), 60)
    assert ttl("trace_samples").endswith("toIntervalDay(60)")
    assert [retention.kept_days(client, "rollup_builds", f"{of}minute") for of in ("", "operation ")] == [30, 64]
    assert [ttl(table)[-17:] for table in ("service_minutes", "operation_minutes")] == [
        "toIntervalDay(32)",
        "toIntervalDay(66)",
    ]
    retention.set_retention(clients.get(), 0, RollupDays(0, 0, 0))
    assert {ttl(table) for table in ("samples", "nodes", "batches", "spans", "rollup_builds")} == {""}
    assert ttl("recent_operations").endswith("toIntervalDay(3)")
    assert retention.sample_days(client) == 0
    for days in (-1, 10**6):
        with pytest.raises(MigrationError, match="retention"):
            retention.set_retention(clients.get(), days)


def test_a_batch_of_old_data_is_remembered_from_when_it_was_stored(clients: Clients, client: Client) -> None:
    retention.set_retention(client, 14)
    sink, batch = ClickHouseSink(clients), tables(SAMPLES, sample_batch(1))
    assert time.time() - 60 * 86_400 > START_MS / 1000
    sink.write(make_range(SAMPLES, [batch], first=1))
    client.command("OPTIMIZE TABLE batches FINAL")
    sink.write(make_range(SAMPLES, [batch], first=2, nonce="1" * 12))
    assert client.query("SELECT sum(count) FROM samples").result_rows == [(5,)]
    client.command("ALTER TABLE batches UPDATE stored_time = stored_time - 15 * 86400 WHERE 1", settings=NOW)
    client.command("ALTER TABLE batches MATERIALIZE TTL", settings=NOW)
    client.command("OPTIMIZE TABLE batches FINAL")
    assert client.query("SELECT count() FROM batches").result_rows == [(0,)]


def test_the_number_of_insert_tokens_is_set_where_tokens_are_used(clients: Clients) -> None:
    retention.remember_inserts(clients.get(), 50_000)
    rows = (
        clients.get()
        .query(
            "SELECT name FROM system.tables WHERE database = currentDatabase()"
            " AND engine_full LIKE '%deduplication_window = 50000%'"
        )
        .result_rows
    )
    assert {name for (name,) in rows} == {
        "samples", "trace_samples", "activity", "batches", "dead_letters", "series_seen", "recent_operations",
            "annotations",
    }  # fmt: skip
    with pytest.raises(MigrationError, match="insert tokens"):
        retention.remember_inserts(clients.get(), 10)


def test_locations_that_nothing_refers_to_go_after_two_days(clients: Clients) -> None:
    client = clients.get()
    for location, age in ((1, 5), (2, 5), (3, 1)):
        client.command(
            f"INSERT INTO locations (location_id, last_seen) VALUES ({location}, now() - INTERVAL {age} DAY)"
        )
    client.command("INSERT INTO nodes VALUES (7, 0, 2, now())")
    retention.drop_unused_locations(client)
    left = "SELECT location_id FROM locations ORDER BY location_id"
    wait_until(lambda: client.query(left).result_rows == [(2,), (3,)])


def test_passwords_are_not_shown() -> None:
    assert shown("http://me:secret@host:8123/db") == "http://me:***@host:8123/db"
    assert shown("chdb:///data") == "chdb:///data"


# All three in one process, as each would import for seconds.
COMMANDS = """
import sys
from icestream.cli import main

for more in (["--retention-days", "30"], [], ["--retention-days", "99999"]):
    print("exit code", main(["migrate", "--clickhouse", sys.argv[1], *more]))
"""


def test_the_command_makes_tables_and_says_so(tmp_path: Path) -> None:
    call = [sys.executable, "-c", COMMANDS, f"chdb://{tmp_path}/db"]
    done = subprocess.run(call, capture_output=True, text=True)
    *applied, first, second, second_code, refused_code = done.stdout.splitlines()
    assert "applied samples" in applied, done.stderr
    assert (first, second, second_code) == ("exit code 0", "the tables are up to date", "exit code 0")
    assert refused_code == "exit code 1"
    assert "retention is 0" in done.stderr


ON_CLUSTER = """
import sys
from icestream.clickhouse.client import connect
from sinks.clickhouse import stored_batches
from sinks.clickhouse.cluster import Cluster
from sinks.clickhouse.migrate import MigrationError, migrate

client = connect("chdb://" + sys.argv[1] + "/db", chdb_options={"config-file": sys.argv[1] + "/config.xml"})
try:
    migrate(client, cluster="nowhere")
except MigrationError as error:
    print(error)
migrate(client)
client.command("INSERT INTO batches (kind, collector, sequence, block) VALUES ('samples', 'host-1', 7, 'b')")
keys = [stored_batches.BatchKey("samples", "host-1", 0, sequence, 0, 0) for sequence in (7, 8)]
print([(key.sequence, block) for key, block in stored_batches.find(client, keys, Cluster("main")).items()])
"""


def test_what_is_stored_on_a_cluster_is_asked_of_all_replicas_that_can_be_reached(tmp_path: Path) -> None:
    """This cluster has two replicas: one is the embedded engine, and one does not exist."""
    replicas = "".join(f"<replica><host>127.0.0.1</host><port>{port}</port></replica>" for port in (9000, 1))
    (tmp_path / "config.xml").write_text(
        "<clickhouse><tcp_port>9000</tcp_port>"
        f"<remote_servers><main><shard>{replicas}</shard></main></remote_servers></clickhouse>"
    )
    done = subprocess.run([sys.executable, "-c", ON_CLUSTER, tmp_path], capture_output=True, text=True)
    unknown, stored = done.stdout.splitlines()
    assert unknown == "there is no cluster nowhere: see system.clusters"
    assert stored == "[(7, 'b')]", done.stderr


def test_a_folder_that_another_process_has_open_is_refused_at_once_and_names_it(tmp_path: Path) -> None:
    dsn = f"chdb://{tmp_path}/db"
    program = (
        f"import sys; from icestream.clickhouse.client import connect; c = connect({dsn!r}); print(); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        assert user.stdout is not None
        user.stdout.readline()
        call = [sys.executable, "-m", "icestream.cli", "migrate", "--clickhouse", dsn]
        refused = subprocess.run(call, capture_output=True, text=True)
        user.communicate()
    assert f"{tmp_path}/db is in use by process {user.pid}" in refused.stderr
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
