"""Replay beside a running store, from Kafka: what is there stays, what is gone comes back.

`make soak` runs it: in CI, tests/jobs/test_replay.py compares all tables, and tests/chaos runs a job from Kafka beside
a running store.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from icestream.times import format_unix_nano
from icestream.topics import ACTIVITY, RAW
from tests.data.windows import WINDOW_NS, window
from tests.pipeline.running import ICESTREAM, Pipeline, between
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.pipeline, pytest.mark.kafka, pytest.mark.soak]

WINDOWS = 6
DELETE = """
import sys
from icestream.clickhouse.client import connect
client = connect(sys.argv[1])
for table in ("samples", "trace_samples"):
    client.command(f"DELETE FROM {table} WHERE host_id = 'host-1'", settings={"lightweight_deletes_sync": 2})
"""


def test_replay_restores_what_was_deleted_and_nothing_else(kafka_pipeline: Pipeline, start_unix_nano: int) -> None:
    pipeline = kafka_pipeline
    start, end = start_unix_nano, start_unix_nano + WINDOWS * WINDOW_NS
    made = [window(start, sequence, host) for sequence in range(1, WINDOWS + 1) for host in range(2)]
    for index, one in enumerate(made):
        pipeline.publish(one, host=index % 2)
    expected = sum(m.value for m in made)
    pipeline.wait(lambda: pipeline.total(start, end), lambda total: total == expected)
    pipeline.settle()  # activity is stored by itself
    before = answers(pipeline, start, end)

    replay(pipeline, start, end)
    assert answers(pipeline, start, end) == before

    pipeline.stop("store")
    subprocess.run(
        [sys.executable, "-c", DELETE, f"chdb://{pipeline.data}/clickhouse"], check=True, cwd=Path(__file__).parents[2]
    )
    pipeline.start("store")
    half = expected - sum(m.value for m in made[1::2])
    pipeline.wait(lambda: pipeline.total(start, end), lambda total: total == half)

    replay(pipeline, start, end)
    assert answers(pipeline, start, end) == before


def test_a_replay_attaches_what_streams_had_no_room_for_in_both_stores(
    kafka_pipeline: Pipeline, start_unix_nano: int
) -> None:
    pipeline = kafka_pipeline
    lake = f"{pipeline.data}/lake"
    pipeline.stop("store")
    pipeline.start("store", "--lake", lake)
    pipeline.stop("streams")
    pipeline.start("streams", "--attach-memory-mb", "0")
    start, end = start_unix_nano, start_unix_nano + WINDOWS * WINDOW_NS
    made = [window(start, sequence, host) for sequence in range(1, WINDOWS + 1) for host in range(2)]
    for topic in (RAW, ACTIVITY):  # all activity is late, and nothing waits for it
        for index, one in enumerate(made):
            pipeline.produce(topic, one.raw if topic == RAW else one.activity, key=f"host-{index % 2}")
        pipeline.settle()
    pipeline.wait(lambda: pipeline.total(start, end), lambda total: total == sum(m.value for m in made))
    expected = sorted(item for m in made for item in m.by_trace.items())
    assert sampled_cpu(pipeline, start, end) != expected

    said = replay(pipeline, start, end)
    assert sampled_cpu(pipeline, start, end) == expected
    assert said.count("minutes of hosts, activity of 0 of") == 2, said
    samples = DeltaTable(f"{lake}/samples").to_pyarrow_table(columns=["trace_id", "value"])
    in_lake = samples.group_by("trace_id").aggregate([("value", "sum")]).to_pylist()
    assert sorted((row["trace_id"].hex(), row["value_sum"]) for row in in_lake if any(row["trace_id"])) == expected
    assert "samples of 0 of" in replay(pipeline, start, end)


def sampled_cpu(pipeline: Pipeline, start: int, end: int) -> list[tuple[str, int]]:
    """The sampled CPU of each trace."""
    traces = pipeline.get("/api/v1/traces", limit=100, **between(start, end))["traces"]
    return sorted((trace["trace_id"], trace["sampled_cpu_ns"]) for trace in traces if trace["sampled_cpu_ns"])


def answers(pipeline: Pipeline, start: int, end: int) -> tuple[object, ...]:
    """Every stack's value, and every trace's."""
    merged = pipeline.get("/api/v1/merge", format="collapsed", **between(start, end))
    traces = pipeline.get("/api/v1/traces", limit=100, **between(start, end))["traces"]
    return sorted(merged.splitlines()), sorted((t["trace_id"], t["sampled_cpu_ns"], t["thread_cpu_ns"]) for t in traces)


def replay(pipeline: Pipeline, start: int, end: int) -> str:
    """Runs the command beside the store; returns what it says."""
    times = ["--from", format_unix_nano(start), "--to", format_unix_nano(end), "--source", "kafka"]
    done = subprocess.run(
        [*ICESTREAM, "replay", *times, "--data", str(pipeline.data)],
        env=os.environ | pipeline.settings.environ(), capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + pipeline.logs()
    return done.stdout
