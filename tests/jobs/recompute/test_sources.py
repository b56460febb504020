"""What a job reads from Kafka by time, and the lag of the live pipeline; on both brokers."""

import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from icestream.kafka.clients import consumer, producer
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, CLICKHOUSE_GROUP, LAKE_GROUP, RAW, STREAMS_GROUP
from jobs.job import JobError
from jobs.recompute.cut import NO_CUT, check_cut, take_cut
from jobs.recompute.sources import ArchiveSource, KafkaSource, SourceError, choose
from jobs.time_range import JobTimeRange
from sinks.settings import StorageSettings
from tests.data.windows import WINDOW_NS, window
from tests.waiting import PATIENCE_S, wait_until

COUNT = 6


def ignore(part: float, text: str) -> None:
    pass


def publish(settings: KafkaSettings, start_unix_nano: int) -> list[bytes]:
    """Windows of one host, with the times that their messages would have had; their raw messages."""
    sender = producer(settings)
    windows = [window(start_unix_nano, sequence) for sequence in range(1, COUNT + 1)]
    for i, one in enumerate(windows):
        at = (start_unix_nano + (i + 1) * WINDOW_NS) // 10**6
        sender.produce(ACTIVITY, one.activity, key=b"host-0", timestamp=at)
        sender.produce(RAW, one.raw, key=b"host-0", timestamp=at)
    sender.produce(RAW, b"\xffgarbage", key=b"host-9", timestamp=start_unix_nano // 10**6)
    assert sender.flush(PATIENCE_S) == 0
    return [one.raw for one in windows]


def test_messages_of_a_range_are_found_in_order(broker: KafkaSettings) -> None:
    start = time.time_ns() // 10**9 * 10**9 - 3600 * 10**9
    sent = publish(broker, start)
    source = KafkaSource(broker)
    read = [m.value for m in source.read(RAW, JobTimeRange(start + WINDOW_NS, start + 3 * WINDOW_NS))]
    assert [value for value in read if value in sent] in (sent[1:3], sent[0:3])  # a window's end is a moment of it
    assert len(list(source.read(ACTIVITY, JobTimeRange(start, start + COUNT * WINDOW_NS)))) == COUNT
    assert list(source.read(RAW, JobTimeRange(start + 100 * WINDOW_NS, start + 101 * WINDOW_NS))) == []


def test_a_job_waits_for_a_pipeline_that_has_not_committed_anything_yet(apache_kafka: KafkaSettings) -> None:
    publish(apache_kafka, time.time_ns() - 3600 * 10**9)
    settings = StorageSettings(kafka=apache_kafka.kafka)
    cut = take_cut(settings, ignore)
    check_cut(settings, cut)
    worker = consumer(apache_kafka, STREAMS_GROUP)
    worker.subscribe([RAW, ACTIVITY])
    wait_until(lambda: worker.poll(0.1) is not None)  # it is a member, and has read
    with pytest.raises(JobError, match="the stream processors: a lag of"):
        take_cut(settings, ignore, wait_s=0)
    with pytest.raises(JobError, match="stream processors began to read this Kafka while the job ran"):
        check_cut(settings, cut)
    check_cut(settings, NO_CUT)
    worker.close()
    with pytest.raises(JobError, match="the stream processors: a lag of"):  # it was killed, and will come again
        take_cut(settings, ignore, wait_s=0)


def test_a_sink_that_begins_before_stream_processors_ends_a_job_that_began_without_both(
    apache_kafka: KafkaSettings, tmp_path: Path
) -> None:
    settings = StorageSettings(kafka=apache_kafka.kafka)
    before_any_message = take_cut(settings, ignore)
    publish(apache_kafka, time.time_ns() - 3600 * 10**9)
    cut, with_lake = take_cut(settings, ignore), take_cut(replace(settings, lake=str(tmp_path)), ignore)
    sink = consumer(apache_kafka, LAKE_GROUP)
    sink.commit(offsets=[TopicPartition(ACTIVITY, 0, 0)], asynchronous=False)
    sink.close()
    check_cut(settings, cut)
    with pytest.raises(JobError, match="the lake sink began to read"):
        check_cut(settings, with_lake)
    sink = consumer(apache_kafka, CLICKHOUSE_GROUP)
    sink.commit(offsets=[TopicPartition(ACTIVITY, 0, 0)], asynchronous=False)
    sink.close()
    with pytest.raises(JobError, match="the ClickHouse sink began to read"):
        check_cut(settings, cut)
    check_cut(settings, before_any_message)  # nothing that both could store


def test_a_job_takes_no_pipeline_for_none_because_kafka_cannot_say_who_is_there(
    apache_kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka answers so for a moment after a restart, while it loads its groups."""

    class Loading(AdminClient):
        def describe_consumer_groups(self, group_ids: list[str], **more: Any) -> "dict[str, Future[Any]]":
            future: Future[Any] = Future()
            future.set_exception(KafkaException(KafkaError(KafkaError.NOT_COORDINATOR)))
            return dict.fromkeys(group_ids, future)

    publish(apache_kafka, time.time_ns() - 3600 * 10**9)
    settings = StorageSettings(kafka=apache_kafka.kafka)
    with monkeypatch.context() as restarted:
        restarted.setattr("jobs.recompute.cut.AdminClient", Loading)
        with pytest.raises(JobError, match="the stream processors: a lag of"):
            take_cut(settings, ignore, wait_s=0)
    take_cut(settings, ignore)


def test_a_job_waits_for_the_pipeline_and_reads_nothing_that_came_later(
    apache_kafka: KafkaSettings, tmp_path: Path
) -> None:
    start = time.time_ns() // 10**9 * 10**9 - 3600 * 10**9
    time_range = JobTimeRange(start + 10**9, start + COUNT * WINDOW_NS)
    publish(apache_kafka, start)
    settings = StorageSettings(kafka=apache_kafka.kafka)
    cut = take_cut(settings, ignore)  # no group ever read it: there is no live pipeline to wait for
    ends = {topic: cut.ends[topic] for topic in (RAW, ACTIVITY)}
    reader = consumer(apache_kafka, STREAMS_GROUP)
    for behind in (1, 0):
        positions = [TopicPartition(topic, p, max(end - behind, 0)) for topic in ends for p, end in ends[topic].items()]
        reader.commit(offsets=positions, asynchronous=False)
        if behind:
            with pytest.raises(JobError, match="the stream processors: a lag of"):
                take_cut(settings, ignore, wait_s=0)
    reader.close()
    with pytest.raises(JobError, match="the ClickHouse sink has never read"):  # there is a live pipeline
        take_cut(settings, ignore, wait_s=0)
    sink = consumer(apache_kafka, CLICKHOUSE_GROUP)
    activity = [TopicPartition(ACTIVITY, p, end) for p, end in ends[ACTIVITY].items()]
    sink.commit(offsets=activity, asynchronous=False)
    sink.close()
    assert take_cut(settings, ignore, wait_s=0).ends == cut.ends
    with_lake = replace(settings, lake=str(tmp_path))
    said: list[str] = []
    with pytest.raises(JobError, match=r"the lake sink has never read .*leave out --lake \(ICESTREAM_LAKE\)"):
        take_cut(with_lake, lambda part, text: said.append(text), wait_s=0)
    assert said[0].startswith("waits for the lake sink, which has not begun: ")
    sink = consumer(apache_kafka, LAKE_GROUP)
    sink.commit(
        offsets=[TopicPartition(ACTIVITY, place.partition, max(place.offset - 1, 0)) for place in activity],
        asynchronous=False,
    )
    with pytest.raises(JobError, match="the lake sink: a lag of"):
        take_cut(with_lake, ignore, wait_s=0)
    sink.commit(offsets=activity, asynchronous=False)
    sink.close()
    assert take_cut(with_lake, ignore, wait_s=0).ends == cut.ends
    before = [m.value for m in KafkaSource(apache_kafka, cut).read(RAW, time_range)]
    publish(apache_kafka, start)
    assert [m.value for m in KafkaSource(apache_kafka, cut).read(RAW, time_range)] == before
    assert len(list(KafkaSource(apache_kafka).read(RAW, time_range))) > len(before)


def test_a_copy_of_kafkas_messages_is_an_archive(broker: KafkaSettings, tmp_path: Path) -> None:
    start = time.time_ns() // 10**9 * 10**9 - 3600 * 10**9
    publish(broker, start)
    time_range = JobTimeRange(start, start + 3 * WINDOW_NS)
    source = KafkaSource(broker)
    copy = source.copy(str(tmp_path), time_range)
    read = {m.value for n in copy.partitions(time_range) for m in copy.read(RAW, time_range, n)}
    assert read == {m.value for m in source.read(RAW, time_range)}


def test_the_source_is_the_archive_where_it_reaches_back_far_enough(tmp_path: Path) -> None:
    hour = tmp_path / "icestream.raw" / "date=2026-01-31" / "hour=10"
    hour.mkdir(parents=True)
    ten = 1_769_853_600 * 10**9
    settings = StorageSettings()
    assert isinstance(choose("auto", settings, str(tmp_path), ten, NO_CUT), ArchiveSource)
    assert isinstance(choose("auto", settings, str(tmp_path), ten - 1, NO_CUT), KafkaSource)
    assert isinstance(choose("archive", settings, str(tmp_path), ten - 1, NO_CUT), ArchiveSource)
    assert isinstance(choose("kafka", settings, str(tmp_path), ten, NO_CUT), KafkaSource)
    with pytest.raises(SourceError, match="no archive"):
        choose("archive", settings, "", ten, NO_CUT)
