"""Jobs after a topic was made anew: what the archive has of the old one is recomputed, whatever its offsets are."""

from pathlib import Path

import pytest

from icestream.clickhouse.client import Clients
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW
from jobs.job import Job
from jobs.recompute.cut import take_cut
from jobs.recompute.slices import Work
from jobs.recompute.sources import ArchiveSource
from jobs.run import run_job
from jobs.stored.batches import known_before, missing_batches
from sinks.archive import archive
from sinks.archive.archive import ArchiveSink
from sinks.settings import StorageSettings
from streams.partition.process import Operators
from tests.changed_kafka import make_anew
from tests.data.windows import WINDOW_NS, window
from tests.jobs.stored import T0
from tests.sinks.engine import clients, empty
from tests.sinks.running import number, running, send
from tests.waiting import wait_until

__all__ = ["clients", "empty"]
pytestmark = [pytest.mark.kafka, pytest.mark.pipeline]

WINDOWS = [window(T0, sequence) for sequence in range(1, 13)]
JOB = Job(kind="replay", start_unix_nano=T0, end_unix_nano=T0 + len(WINDOWS) * WINDOW_NS, source="archive")


def quiet(part: float, text: str) -> None:
    pass


@pytest.fixture
def settings(apache_kafka: KafkaSettings, engine: str, tmp_path: Path) -> StorageSettings:
    """Eight windows were archived, and then the topics were made anew and got four others, at the same offsets."""
    folder = str(tmp_path / "archive")
    with running(apache_kafka, ArchiveSink(folder)):
        publish(apache_kafka, folder, 0, 8)
    make_anew(apache_kafka, RAW, ACTIVITY)
    with running(apache_kafka, ArchiveSink(folder)):
        publish(apache_kafka, folder, 8, 12)
    return StorageSettings(kafka=apache_kafka.kafka, clickhouse=engine, archive=folder, max_late_days=36_500)


def publish(kafka: KafkaSettings, folder: str, first: int, end: int) -> None:
    for one in WINDOWS[first:end]:
        send(kafka, ACTIVITY, one.activity)
        send(kafka, RAW, one.raw)
    for topic in (RAW, ACTIVITY):
        wait_until(lambda topic=topic: sum(1 for _ in archive.read(folder, topic, T0, JOB.end_unix_nano)) == end)


def test_a_replay_stores_what_was_archived_of_both_topics(settings: StorageSettings, clients: Clients) -> None:
    for _ in range(2):
        run_job(JOB, settings, clients, quiet)
        assert number(clients, "SELECT sum(value) FROM samples") == sum(one.value for one in WINDOWS)
        assert number(clients, "SELECT count() FROM batches WHERE kind = 'activity'") == len(WINDOWS)


def test_batches_of_the_old_topic_are_missing_where_the_source_lacks_them(
    settings: StorageSettings, clients: Clients, tmp_path: Path
) -> None:
    """Batches that a sink stores while the job runs are not."""
    run_job(JOB, settings, clients, quiet)
    known = known_before(clients.get(), "", JOB.time_range, None)
    cut = take_cut(settings, quiet, known=known)
    nothing = ArchiveSource(str(tmp_path / "empty"), cut)
    work = Work(clients.get(), nothing, Operators, JOB)
    assert len(missing_batches(work, JOB.time_range, set())) == 2 * len(WINDOWS)
    assert cut.was_stored(RAW, cut.cluster, 0, 7)
    assert not cut.was_stored(RAW, cut.cluster, 0, 8)
