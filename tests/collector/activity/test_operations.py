"""Operations on their way from datagrams to activity batches."""

import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.activity.activity_batch import finish, split
from collector.activity.activity_datagram import MalformedDatagram, decode
from collector.activity.activity_socket import ActivityReceiver
from icestream import tracing
from icestream.labels.operations import MANY_OPERATIONS, OperationNames
from icestream.messages.activity import STATUSES, ActivityColumns, decode_activity
from icestream.tracing.datagram import IntervalColumns, datagrams
from icestream.tracing.threads import ENTRY, ERROR, Context, SpanEnd
from icestream.v1.activity_pb2 import ActivityBatch
from icestream.v1.common_pb2 import BatchId
from tests.waiting import wait_until

NOW = 10**13
TRACE = bytes(range(1, 17))
OFFSET_NS = 1_700_000_000 * 10**9


def record(span: int) -> bytes:
    return TRACE + span.to_bytes(8, "big") + b"\x01\x01\x00\x00"


def context(span: int, operation: str, within: Context | None = None) -> Context:
    """A span's context; `within`: that of the entry span, if it is another one."""
    made = tracing.span(TRACE.hex(), f"{span:016x}", operation)
    made.entry = within
    return made


def datagram(contexts: list[Context], spans: list[SpanEnd], now: int = NOW, service: bytes = b"shop") -> bytes:
    count = len(contexts)
    starts = [now + 1000 * i for i in range(count)]
    ends = [start + 1000 for start in starts]
    columns = IntervalColumns(contexts, starts, [0] * count, ends, [900] * count, [os.getpid()] * count)
    (only,) = datagrams(service, os.getpid(), columns, spans, 0)
    return only.content


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[ActivityReceiver]:
    receiver = ActivityReceiver(tmp_path / "activity.sock")
    yield receiver
    receiver.close()


def batch(receiver: ActivityReceiver, *contents: bytes) -> ActivityColumns:
    """The activity batch of these datagrams."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(str(receiver.path))
        for content in contents:
            sender.send(content)
    wait_until(lambda: receiver.counts.datagrams >= len(contents))
    common = ActivityBatch(host_id="h", complete_unix_nano=OFFSET_NS)
    parts = split(receiver.drain(), OFFSET_NS, common)
    (message,) = finish(parts, BatchId(collector="h", started_unix_nano=1, sequence=1), OFFSET_NS)
    return decode_activity(message)


def test_each_context_has_the_operation_and_the_entry_span_of_its_request(receiver: ActivityReceiver) -> None:
    now = time.monotonic_ns() - 10**6
    entry: SpanEnd = (record(1), b"", "GET /a", now - 9, now, ENTRY | ERROR)
    inner: SpanEnd = (record(2), (1).to_bytes(8, "big"), "render", now - 9, now, ERROR)
    fine: SpanEnd = (record(3), (1).to_bytes(8, "big"), "load", now - 9, now, 0)
    renamed = context(1, "GET /a")
    read = batch(
        receiver,
        datagram([context(1, "GET"), Context(TRACE + bytes(7) + b"\x09")], [entry, inner, fine], now),
        datagram([context(2, "render", renamed), renamed], [], now + 10_000),
    )
    found = {
        (int.from_bytes(ids[16:].tobytes(), "big"), int.from_bytes(entry_id.tobytes(), "big"), read.strings[operation])
        for ids, entry_id, operation in zip(read.contexts, read.entry_span_ids, read.operation, strict=True)
    }
    assert found == {(1, 1, "GET /a"), (2, 1, "GET /a"), (9, 0, "")}
    assert dict(zip(read.spans.name.texts(), read.spans.operation.texts(), strict=True)) == {
        "GET /a": "GET /a",
        "render": "",
        "load": "",
    }
    assert [STATUSES[status] for status in read.spans.status] == ["error", "error", ""]


def test_operations_beyond_the_limit_of_a_service_have_one_name_and_are_counted() -> None:
    names = OperationNames(2)
    assert [names.limited("shop", f"GET /{i}") for i in range(1, 5)] == ["GET /1", "GET /2", *[MANY_OPERATIONS] * 2]
    assert names.limited("cart", "GET /5") == "GET /5"
    assert names.replaced == 2


def test_a_day_later_a_service_may_have_other_operations() -> None:
    now = 0.0
    names = OperationNames(1, lambda: now)
    assert [names.limited("shop", name) for name in ("a", "b", "a", "")] == ["a", MANY_OPERATIONS, "a", ""]
    now = 90_000.0
    assert [names.limited("shop", name) for name in ("b", "a")] == ["b", MANY_OPERATIONS]


def test_beyond_a_thousand_services_the_least_recently_used_is_forgotten() -> None:
    names = OperationNames(1)
    for service in ("shop", "cart", *map(str, range(998))):
        names.limited(service, "first")
    assert names.limited("shop", "second") == MANY_OPERATIONS  # used again
    names.limited("new", "first")
    assert names.limited("shop", "second") == MANY_OPERATIONS
    assert names.limited("cart", "second") == "second"


def test_datagrams_of_version_1_are_read_and_have_no_operations() -> None:
    head = struct.pack("<4sHHIIIIIIIIQ", b"ICEA", 1, 0, 7, 1, 1, 1, 1, 4, 4, 0, 0)
    columns = struct.pack("<5Q", NOW - 1000, 1000, 900, NOW - 9, NOW - 1) + struct.pack("<4I", 7, 0, 0, 4)
    identifiers = TRACE + bytes(7) + b"\x01" + TRACE + bytes(7) + b"\x01" + bytes(8)
    read = decode(head + columns + identifiers + b"shop" + b"name", NOW)
    assert (read.operations, read.entry_span_ids.tolist(), read.span_is_entry.tolist()) == ([""], [[0] * 8], [False])
    assert (read.service, read.span_names, read.thread_cpu_ns.tolist()) == ("shop", ["name"], [900])


def test_an_operation_out_of_range_is_malformed() -> None:
    content = datagram([context(1, "GET")], [])
    at = 48 + 24 + 8
    assert struct.unpack_from("<I", content, at) == (0,)
    with pytest.raises(MalformedDatagram, match="row number"):
        decode(content[:at] + struct.pack("<I", 1) + content[at + 4 :], NOW)
