"""The parts that a pushed profile goes through, as processes: started, waited for, and their CPU."""

import http.client
import time

from collector.guest.own_cpu import seconds_of
from icestream.topics import ARCHIVE_GROUP, CLICKHOUSE_GROUP, RAW, SAMPLES, STACKS, STREAMS_GROUP
from standalone.supervisor.local_kafka import LocalKafka
from tests.pipeline.reading import lag
from tests.pipeline.running import Pipeline

PARTS = ("gateway", "streams", "store")
_ARCHIVE_FLUSH_S = "10"
_PATIENCE_S = 3600.0
_POLL_S = 1.0


def start_parts(pipeline: Pipeline) -> None:
    """Returns when all parts are ready. The store comes first: a Kafka that was just started may not know itself yet,
    and a stream worker that meets it then ends."""
    pipeline.start("store", "--lake-flush-s", _ARCHIVE_FLUSH_S)
    pipeline.wait(lambda: pipeline.get("/readyz"), lambda answer: answer["status"] == "ready", _PATIENCE_S)
    pipeline.start("streams")
    pipeline.start("gateway")
    pipeline.wait(lambda: _gateway_status(pipeline.gateway), lambda status: status == 200, _PATIENCE_S)


def _gateway_status(address: str) -> int:
    connection = http.client.HTTPConnection(address)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status
    finally:
        connection.close()


def wait_until_stored(pipeline: Pipeline) -> None:
    for group, topics in ((STREAMS_GROUP, [RAW]), (CLICKHOUSE_GROUP, [STACKS, SAMPLES])):
        _wait_for(pipeline, group, topics)


def wait_until_archived(pipeline: Pipeline) -> None:
    _wait_for(pipeline, ARCHIVE_GROUP, [RAW])


def _wait_for(pipeline: Pipeline, group: str, topics: list[str]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while unread := lag(pipeline.settings, group, topics):
        if time.monotonic() > deadline or pipeline.ended():
            raise RuntimeError(f"{group} has not read {unread} messages, ended: {pipeline.ended()}\n{pipeline.logs()}")
        time.sleep(_POLL_S)


def cpu_seconds(pipeline: Pipeline, kafka: LocalKafka) -> dict[str, float]:
    """The CPU so far of each process."""
    assert kafka.process is not None
    return {name: seconds_of(pipeline.pid(name)) for name in PARTS} | {"kafka": seconds_of(kafka.process.pid)}
