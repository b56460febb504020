"""A disk that is full destroys nothing: the embedded ClickHouse opens again, with all rows, and each of them once."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from icestream.settings import KafkaSettings
from icestream.topics import ARCHIVE_GROUP, LAKE_GROUP, RAW, SAMPLES
from sinks.archive import archive
from sinks.archive.archive import ArchiveSink
from sinks.clickhouse.disk_room import DiskRoom
from sinks.lake.sink import LakeSink
from tests.sinks.messages import sample_batch
from tests.sinks.running import committed, running, send
from tests.sinks.small_disk import SmallDisk, small_disk
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.store


@pytest.fixture(params=["ext4", pytest.param("tmpfs", marks=pytest.mark.soak)])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(request.param, tmp_path) as made:
        yield made


def migrate(disk: SmallDisk, *more: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "icestream.cli", "migrate", "--clickhouse", f"chdb://{disk.path}/db", *more]
    return subprocess.run(command, capture_output=True, text=True)


def test_migrate_on_a_full_disk_changes_nothing_and_says_why(disk: SmallDisk) -> None:
    assert migrate(disk).returncode == 0
    disk.fill()
    assert migrate(disk).stdout == "the tables are up to date\n"
    refused = migrate(disk, "--retention-days", "3")
    assert refused.returncode == 1
    assert "is full: 0 MB are free, and 64 MB are needed" in refused.stderr
    disk.free()
    assert "changed how long rows are kept in trace_samples, activity," in migrate(disk, "--retention-days", "3").stdout
    assert migrate(disk, "--retention-days", "3").stdout == "the tables are up to date\n"


CHANGES = """
import sys
from icestream.clickhouse.client import connect
from icestream.files.free_space import DiskFullError
from sinks.clickhouse import change_tables
from sinks.clickhouse.migrate import migrate
from sinks.clickhouse.retention import kept_days, set_retention

change_tables.NEEDED_MB = 0  # as if the disk had got full since it was asked
client = connect(f"chdb://{sys.argv[1]}/db")
try:
    migrate(client)
    if len(sys.argv) > 2:
        set_retention(client, int(sys.argv[2]))
    if len(sys.argv) > 3:
        change_tables.change_tables(client, "CREATE TABLE another (n UInt8) ENGINE = MergeTree ORDER BY n")
    print(kept_days(client, "activity"), client.query("SELECT count() FROM series").result_rows[0][0])
except DiskFullError as error:
    print(error)
except Exception as error:
    print("other error:", error)
"""


def change(disk: SmallDisk, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", CHANGES, disk.path, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_disk_that_gets_full_while_a_table_is_changed_leaves_the_definition_of_before(disk: SmallDisk) -> None:
    assert change(disk, "20") == "20 0\n"
    disk.fill()
    assert "got full while tables were changed" in change(disk, "3")
    assert change(disk) == "20 0\n"  # also while it is full
    disk.free()
    assert change(disk, "3") == "3 0\n"


def test_a_table_that_was_being_made_is_made_later(disk: SmallDisk) -> None:
    change(disk, "20")
    disk.fill()
    assert change(disk, "20", "another") != "20 0\n"
    disk.free()
    assert change(disk, "20", "another") == "20 0\n"


def test_tables_that_were_first_made_on_a_full_disk_are_made_when_there_is_room(disk: SmallDisk) -> None:
    (disk.path / "db").mkdir()
    disk.fill()
    change(disk)
    disk.free()
    assert change(disk, "20") == "20 0\n"


DELETES = """
import sys
from icestream.clickhouse.client import connect

client = connect(f"chdb://{sys.argv[1]}/db")
if sys.argv[2] == "delete":
    client.command("INSERT INTO locations (location_id) VALUES (1), (2)")
    print("full?", flush=True)
    sys.stdin.readline()
    client.command("DELETE FROM locations WHERE location_id = 1", settings={"lightweight_deletes_sync": 0})
print(client.query("SELECT count() FROM locations").result_rows[0][0])
"""


def test_a_deletion_on_a_full_disk_does_not_keep_the_database_from_opening(disk: SmallDisk) -> None:
    migrate(disk)
    command = [sys.executable, "-c", DELETES, str(disk.path)]
    with subprocess.Popen([*command, "delete"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        disk.fill()
        process.communicate("yes\n", timeout=PATIENCE_S)
    disk.free()
    opened = subprocess.run([*command, "count"], capture_output=True, text=True)
    assert opened.stdout in ("1\n", "2\n"), opened.stderr


def test_a_sink_leaves_room_on_its_disk_and_goes_on_when_there_is_some(
    disk: SmallDisk, in_process_broker: KafkaSettings
) -> None:
    folder = disk.path / "archive"
    disk.fill()
    room = DiskRoom("archive", folder, 20)
    sink = ArchiveSink(str(folder))
    with running(in_process_broker, sink, room=room) as runner:
        wait_until(lambda: "is full: 0 MB are free, and 20 MB are needed" in (runner.problem or ""))
        disk.free()
        send(in_process_broker, RAW, b"one")
        wait_until(lambda: committed(in_process_broker, RAW, group=ARCHIVE_GROUP) == 1)
        disk.fill()
        send(in_process_broker, RAW, b"two")
        wait_until(lambda: "is full" in (runner.problem or ""))
        assert committed(in_process_broker, RAW, group=ARCHIVE_GROUP) == 1
        disk.free()
        wait_until(lambda: committed(in_process_broker, RAW, group=ARCHIVE_GROUP) == 2)
    assert sorted(message.value for message in archive.read(str(folder), RAW, 0, 2**62)) == [b"one", b"two"]


def test_a_disk_that_gets_full_while_a_lake_is_written_loses_and_doubles_nothing(
    disk: SmallDisk, in_process_broker: KafkaSettings
) -> None:
    folder = disk.path / "lake"
    with running(in_process_broker, LakeSink(str(folder))) as runner:

        def stored(number: int) -> bool:
            return committed(in_process_broker, SAMPLES, group=LAKE_GROUP) == number

        for number, left in enumerate((None, 0, 8192, 40_000), 1):
            if left is not None:
                disk.fill(left)
            send(in_process_broker, SAMPLES, sample_batch(number))
            wait_until(lambda number=number: runner.problem or stored(number))
            disk.free()
            wait_until(lambda number=number: stored(number))
    traces = [row["trace_id"] for row in DeltaTable(f"{folder}/samples").to_pyarrow_table().to_pylist()]
    assert Counter(traces) == {number.to_bytes(16, "big"): 2 for number in range(1, 5)} | {bytes(16): 12}


STORE = """
import sys, threading
from icestream.clickhouse.client import Clients
from icestream.settings import KafkaSettings
from sinks.runner import runner
from sinks.clickhouse.sink import ClickHouseSink
from sinks.clickhouse.migrate import migrate
from sinks.clickhouse.disk_room import DiskRoom
from functools import partial
from pathlib import Path

# The next process waits until the session of the one that was killed has ended.
runner.consumer = partial(runner.consumer, **{"session.timeout.ms": 2000, "heartbeat.interval.ms": 300})
folder, kafka = sys.argv[1:]
clients = Clients(f"chdb://{folder}/db")
migrate(clients.get())
stop = threading.Event()
sink = runner.Runner(
    ClickHouseSink(clients), KafkaSettings(kafka=kafka, kafka_in_process=True), lambda letters: None, stop, 0.2,
    room=DiskRoom("clickhouse", Path(folder, "db"), 20),
)
thread = threading.Thread(target=sink.run)
thread.start()
for line in sys.stdin:
    print(sink.problem, flush=True)
stop.set()
thread.join()
rows = clients.get().query("SELECT (SELECT count() FROM samples), (SELECT count() FROM batches)").result_rows
print(list(rows[0]), flush=True)
"""


def test_a_store_that_is_killed_on_a_full_disk_has_every_row_once(
    disk: SmallDisk, in_process_broker: KafkaSettings
) -> None:
    command = [sys.executable, "-c", STORE, str(disk.path), in_process_broker.kafka]

    def start() -> "subprocess.Popen[str]":
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def stored(number: int) -> None:
        wait_until(lambda: committed(in_process_broker, SAMPLES) == number)

    process = start()
    for sent in range(1, 4):
        send(in_process_broker, SAMPLES, sample_batch(sent))
        stored(sent)
    disk.fill()
    sent += 1
    send(in_process_broker, SAMPLES, sample_batch(sent))
    kill_when_full(process)
    kill_when_full(start())  # it opens
    assert committed(in_process_broker, SAMPLES) == sent - 1
    disk.free()
    process = start()
    stored(sent)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert json.loads(output) == [5 * sent, sent]


def kill_when_full(process: "subprocess.Popen[str]") -> None:
    """Kills a store as soon as it says that its disk is full."""

    def problem() -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("?\n")
        return process.stdout.readline()

    wait_until(lambda: "is full" in problem())
    process.kill()
    process.communicate()
