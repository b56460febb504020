"""What the embedded ClickHouse could not write to a disk that got full is put right before any row is lost."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from icestream.settings import KafkaSettings
from icestream.topics import SAMPLES
from tests.sinks.messages import sample_batch
from tests.sinks.running import committed, send
from tests.sinks.small_disk import SmallDisk, small_disk
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.store


@pytest.fixture(params=["ext4", pytest.param("tmpfs", marks=pytest.mark.soak)])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(request.param, tmp_path) as made:
        yield made


START = """
import os, sys
from pathlib import Path
from icestream.clickhouse.client import Clients
from icestream.files.free_space import DiskFullError
from sinks.clickhouse.damaged_parts import mend, whole_parts
from sinks.clickhouse.disk_guard import DiskGuard
from sinks.clickhouse.disk_room import DiskRoom
from tests.sinks.small_disk import SmallDisk

disk = SmallDisk(Path(sys.argv[1]))
clients = Clients(f"chdb://{disk.path}/db")
client = clients.get()
TABLE = "CREATE TABLE t (n UInt64, s String{}) ENGINE = MergeTree ORDER BY n"
TABLE += " SETTINGS non_replicated_deduplication_window = 9"

def insert(number, rows="randomString(2000)"):
    sql = f"INSERT INTO t SELECT {number}, {rows} FROM numbers(1000)"
    client.command(sql, settings={"insert_deduplication_token": str(number)})
"""
READ = """
print(client.query("SELECT n, count(), sum(length(s)) FROM t GROUP BY n ORDER BY n").result_rows)
"""


def run(disk: SmallDisk, script: str) -> str:
    """Runs it in a process that is killed at its end, and so writes nothing more."""
    command = [sys.executable, "-c", f"{START}{script}\nsys.stdout.flush(); os._exit(0)", str(disk.path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


# An index with all values doubles what is written, and ClickHouse only asks for room for the rows.
INSERTS = """
client.command(TABLE.format(", INDEX doubles s TYPE set(0) GRANULARITY 1"))
insert(1)
disk.fill(leave=2_500_000)
try:
    with whole_parts(client):
        insert(2)
except DiskFullError as error:
    print(error)
"""


def test_an_insert_that_could_not_be_written_is_refused_and_can_be_repeated_under_its_token(disk: SmallDisk) -> None:
    again = "disk.free(); insert(1); insert(2)"
    assert "got full while rows were inserted" in run(disk, INSERTS + again)
    assert run(disk, READ) == "[(1, 1000, 2000000), (2, 1000, 2000000)]\n"


def test_it_can_also_be_repeated_by_the_next_process(disk: SmallDisk) -> None:
    run(disk, INSERTS)
    disk.free()
    assert run(disk, "insert(1); insert(2)" + READ) == "[(1, 1000, 2000000), (2, 1000, 2000000)]\n"


# The parts are small, and their merge is not, because the column is not compressed any more.
MERGES = """
client.command(TABLE.format(""))
client.command("SYSTEM STOP MERGES")
for number in range(1, 5):
    insert(number, "repeat('a', 2000)")
client.command("ALTER TABLE t MODIFY COLUMN s String CODEC(NONE)")
disk.fill(leave=2_500_000)
client.command("SYSTEM START MERGES")
client.command("OPTIMIZE TABLE t FINAL")
"""
MERGED = f"{[(number, 1000, 2_000_000) for number in range(1, 5)]}\n"


def test_parts_whose_merge_could_not_be_written_come_back(disk: SmallDisk) -> None:
    parts = "print(client.query('SELECT count() FROM system.parts WHERE active').result_rows[0][0]);"
    assert run(disk, f"{MERGES}{parts} mend(client); {parts}") == "1\n4\n"
    # What the engine would remove after 8 minutes.
    removed = "client.command('ALTER TABLE t MODIFY SETTING old_parts_lifetime = 1')"
    disk.free()
    assert run(disk, READ + removed) == MERGED


GUARD = """
guard = DiskGuard(clients, DiskRoom("clickhouse", disk.path / "db", 100))
def merge():
    try:
        client.command("OPTIMIZE TABLE t FINAL SETTINGS optimize_throw_if_noop = 1")
        print("merged")
    except Exception as error:
        print("Cancelled merging parts" in str(error))
        clients.discard()
"""


def test_merges_wait_while_the_disk_has_too_little_room(disk: SmallDisk) -> None:
    script = """
client.command(TABLE.format(""))
insert(1); insert(2)
disk.fill(leave=40_000_000)
guard.step(); merge(); client = clients.get()
disk.free()
guard.step(); merge()
"""
    assert run(disk, GUARD + script) == "True\nmerged\n"


SINK = """
import threading
from functools import partial
from icestream.settings import KafkaSettings
from sinks.runner import runner
from sinks.clickhouse.sink import ClickHouseSink
from sinks.clickhouse.migrate import migrate

runner.consumer = partial(runner.consumer, **{"session.timeout.ms": 2000, "heartbeat.interval.ms": 300})
migrate(client)
large = "arrayStringConcat(arrayMap(i -> hex(sipHash128(i, stack_id, time, value, tid)), range(60000)))"
client.command(f"ALTER TABLE samples ADD COLUMN IF NOT EXISTS large String DEFAULT {large} CODEC(NONE)")
client.command("ALTER TABLE samples ADD INDEX IF NOT EXISTS doubles large TYPE set(0) GRANULARITY 1")
stop = threading.Event()
settings = KafkaSettings(kafka=sys.argv[2], kafka_in_process=True)
# As if the disk had got full since the sink asked for its room.
sink = runner.Runner(ClickHouseSink(clients), settings, lambda letters: None, stop, 0.2)
thread = threading.Thread(target=sink.run)
thread.start()
for line in sys.stdin:
    print(sink.problem, flush=True)
rows = clients.get().query("SELECT (SELECT count() FROM samples), (SELECT count() FROM batches)").result_rows
print(list(rows[0]), flush=True)
os._exit(0)
"""


def test_a_sink_commits_nothing_that_a_full_disk_did_not_take(
    disk: SmallDisk, in_process_broker: KafkaSettings
) -> None:
    command = [sys.executable, "-c", START + SINK, str(disk.path), in_process_broker.kafka]

    def start() -> "subprocess.Popen[str]":
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    process = start()
    send(in_process_broker, SAMPLES, sample_batch(1))
    wait_until(lambda: committed(in_process_broker, SAMPLES) == 1)
    disk.fill(leave=12_000_000)
    send(in_process_broker, SAMPLES, sample_batch(2))
    wait_until(lambda: "does not take data" in problem(process))
    process.kill()
    process.communicate()
    disk.free()
    process = start()
    wait_until(lambda: committed(in_process_broker, SAMPLES) == 2)
    process.communicate(timeout=PATIENCE_S)
    output, _ = start().communicate(timeout=PATIENCE_S)
    assert json.loads(output) == [10, 2]


def problem(process: "subprocess.Popen[str]") -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("?\n")
    return process.stdout.readline()
