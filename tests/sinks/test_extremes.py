"""Messages with the most extreme values that are accepted: both stores take them as they are."""

from pathlib import Path

import numpy as np
from clickhouse_connect.driver.client import Client
from confluent_kafka import Message
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from icestream.clickhouse.client import Clients
from icestream.messages import checks
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW, SAMPLES, STACKS
from icestream.v1.activity_pb2 import Span
from icestream.v1.common_pb2 import BatchId, Label, Mapping, Series
from sinks.clickhouse.sink import ClickHouseSink
from sinks.lake.sink import LakeSink
from tests.data import messages
from tests.examples import examples
from tests.sinks.messages import make_range, tables
from tests.sinks.running import running, send
from tests.waiting import wait_until

MAX_UNIX_NANO = 4_102_444_799_999_999_999
ODD = (
    "\0",
    "a\0b",
    "'; DROP TABLE samples --",
    "\\",
    "\\N",
    '"',
    "\t\n\r",
    "\x7f\x01",
    "{x:String}",
    "%s",
    "\ufffe",
    "é☃😀",
)


def texts(most: int, size: int = 4) -> st.SearchStrategy[str]:
    """Odd texts, and the longest: `most` bytes in characters of `size` bytes."""
    return st.sampled_from([*ODD, "x" * (most // size), chr(0x10000) * (most // 4)])


IDS = texts(checks.MAX_ID, size=1)
TEXTS = texts(checks.MAX_TEXT * 4)
U32, U64 = st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1]), st.sampled_from([0, 2**63 - 1, 2**63, 2**64 - 1])
TIMES = st.sampled_from([0, 1, 10**18, MAX_UNIX_NANO])
PROFILE_TYPES = IDS.map(
    lambda text: (text.replace(":", "").encode()[: checks.MAX_ID - 4]).decode("utf-8", "ignore") + ":" * 4
)
BATCHES = st.builds(
    BatchId, collector=IDS, started_unix_nano=TIMES, sequence=st.sampled_from([1, checks.MAX_SEQUENCE]),
    part=st.sampled_from([0, checks.MAX_PARTS - 1]), parts=st.just(checks.MAX_PARTS),
)  # fmt: skip
CONTEXTS = st.sampled_from([bytes(24), b"\xff" * 24, b"\0" * 16 + b"\x01" * 8]).map(
    lambda one: messages.contexts([one])
)
LABELS = st.dictionaries(TEXTS, TEXTS, max_size=3) | st.just({str(i): "v" * 240 for i in range(checks.MAX_LABELS)})


@st.composite
def sample_batches(draw: st.DrawFn) -> bytes:
    source = messages.source(
        draw(BATCHES), draw(st.sampled_from([RAW, ACTIVITY])), draw(st.sampled_from([0, checks.MAX_OFFSET])),
        checks.MAX_PARTS - 1, checks.MAX_PARTS,
    )  # fmt: skip
    source.cluster, source.partition = draw(IDS), draw(st.sampled_from([0, 2**31 - 1]))
    value = int(checks.MAX_SUM) - 2**10
    labels = draw(LABELS)
    return messages.sample_batch(
        source, draw(TIMES) // 10**6,
        {
            "sample_offset_ms": [0], "sample_pid": [draw(U32)], "sample_tid": [draw(U32)],
            "sample_stack_id": np.array([draw(U64)], np.uint64), "sample_context": [1],
            "sample_count": [draw(st.sampled_from([-(2**31), 2**31 - 1]))],
            "sample_value": [draw(st.sampled_from([value, -value]))],
        },
        host_id=draw(IDS), profile_type=draw(PROFILE_TYPES), published_unix_nano=draw(TIMES), period=checks.MAX_PERIOD,
        configured_period=checks.MAX_PERIOD, lost_samples=checks.MAX_COUNT, dropped_samples=checks.MAX_COUNT,
        series=[Series(id=draw(U64), labels=[Label(name=n, value=v) for n, v in labels.items()])], **draw(CONTEXTS),
    )  # fmt: skip


@st.composite
def stack_batches(draw: st.DrawFn) -> bytes:
    def ids() -> np.ndarray:
        return np.array([draw(U64)], np.uint64)

    line = st.sampled_from([0, checks.MAX_LINE])
    return messages.stack_batch(
        {
            "node_id": ids(), "node_parent_id": ids(), "node_location_id": ids(), "location_id": ids(),
            "location_address": ids(), "location_version": [draw(st.sampled_from([0, checks.MAX_VERSION]))],
            "location_line_count": [1], "line_function": [1], "line_file": [2], "line_number": [draw(line)],
            "line_start_line": [draw(line)],
        },
        seen_unix_nano=draw(TIMES), published_unix_nano=draw(TIMES), strings=["", draw(TEXTS), draw(TEXTS)],
        mappings=[Mapping(), Mapping(kind=Mapping.NAMED, build_id=draw(TEXTS), file=draw(texts(checks.MAX_FILE * 4)))],
    )  # fmt: skip


@st.composite
def activity_batches(draw: st.DrawFn) -> bytes:
    start = draw(TIMES)
    span = Span(
        trace_id=draw(st.sampled_from([bytes(16), b"\xff" * 16])), span_id=b"\xff" * 8, name=draw(TEXTS),
        service=draw(TEXTS), start_unix_nano=draw(TIMES), end_unix_nano=draw(TIMES),
    )  # fmt: skip
    return messages.activity_batch(
        draw(BATCHES), start,
        {
            "interval_start_offset_ns": [0], "interval_duration_ns": [MAX_UNIX_NANO - start],
            "interval_thread_cpu_ns": [int(checks.MAX_SUM) - 2**10], "interval_pid": [draw(U32)],
            "interval_tid": [draw(U32)], "interval_service": [1],
        },
        host_id=draw(IDS), published_unix_nano=draw(TIMES), dropped=checks.MAX_COUNT, strings=["", draw(TEXTS)],
        spans=[span], **draw(CONTEXTS),
    )  # fmt: skip


SETTINGS = settings(
    max_examples=examples(0.2), database=None, phases=[Phase.generate], derandomize=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@SETTINGS
@given(sample_batches(), stack_batches(), activity_batches(), st.binary(min_size=6, max_size=6))
def test_what_is_accepted_is_stored(
    clients: Clients, client: Client, samples: bytes, stacks: bytes, activity: bytes, nonce: bytes
) -> None:
    sink, stored = ClickHouseSink(clients), ("samples", "series", "nodes", "locations", "activity", "spans", "batches")
    for table in stored:
        client.command(f"TRUNCATE TABLE {table}")
    for topic, data in ((SAMPLES, samples), (STACKS, stacks), (ACTIVITY, activity)):
        for retried in (False, True):
            sink.write(make_range(topic, [tables(topic, data)], nonce=nonce.hex(), retried=retried))
    for table in stored:
        found = client.query(f"SELECT count() FROM (SELECT DISTINCT * FROM {table})").result_rows
        assert found == [(2 if table == "batches" else 1,)], table
    assert client.query("SELECT (SELECT count() FROM samples), count() FROM activity").result_rows == [(1, 1)]


@settings(SETTINGS, max_examples=1)
@given(*(st.lists(batch, min_size=4, max_size=4) for batch in (sample_batches(), stack_batches(), activity_batches())))
def test_what_is_accepted_is_kept_in_a_lake(
    in_process_broker: KafkaSettings, tmp_path: Path, samples: list[bytes], stacks: list[bytes], activity: list[bytes]
) -> None:
    for topic, batches in ((SAMPLES, samples), (STACKS, stacks), (ACTIVITY, activity)):
        send(in_process_broker, topic, *batches)
    rejected: list[Message] = []
    with running(in_process_broker, LakeSink(str(tmp_path)), rejected):
        for table in ("samples", "series", "nodes", "locations", "activity", "spans"):
            wait_until(lambda table=table: rows(tmp_path / table))
    assert rejected == []


def rows(folder: Path) -> int:
    """Rows of a Delta table, which may not be there yet."""
    return len(DeltaTable(str(folder)).to_pyarrow_table()) if DeltaTable.is_deltatable(str(folder)) else 0
