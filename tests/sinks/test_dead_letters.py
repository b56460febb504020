"""Rows of the table `dead_letters`."""

from confluent_kafka import Message

from icestream.clickhouse.client import Clients
from icestream.topics import DEAD_LETTERS
from sinks.clickhouse.sink import ClickHouseSink
from tests.sinks.messages import make_range

HEADERS: list[tuple[str, str | bytes | None]] = [
    ("icestream.error", b"expected 1, got \xff"),
    ("icestream.stage", b"streams decode"),
    ("icestream.topic", b"icestream.raw"),
    ("icestream.partition", b"3"),
    ("icestream.offset", b"17"),
]


def test_a_dead_letter_is_stored_whatever_it_is(clients: Clients) -> None:
    sink = ClickHouseSink(clients)
    letters = [
        Message(
            topic=DEAD_LETTERS, key=b"host-1", value=b"x" * 1000, headers=HEADERS, timestamp=(1, 1_770_000_000_000)
        ),
        Message(topic=DEAD_LETTERS, key=b"\xff", headers=[("icestream.offset", b"9" * 5000)], timestamp=(1, 2**62)),
        Message(topic=DEAD_LETTERS, headers=[("icestream.partition", b"-7")], timestamp=(0, -1)),
    ]
    found = [sink.decode(letter, "C") for letter in letters]
    for retried in (False, True):
        sink.write(make_range(DEAD_LETTERS, found, retried=retried))
    rows = clients.get().query(
        "SELECT host_id, topic, partition, offset, stage, error FROM dead_letters ORDER BY host_id = '', host_id"
    )
    assert rows.result_rows == [
        ("host-1", "icestream.raw", 3, 17, "streams decode", "expected 1, got \N{REPLACEMENT CHARACTER}"),
        ("\N{REPLACEMENT CHARACTER}", "", -1, -1, "", ""),
        ("", "", -1, -1, "", ""),
    ]
