"""GET /api/v1/completeness: every kind of hole is told, and nothing that is none."""

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from clickhouse_connect.driver.client import Client
from confluent_kafka import Message

from api.terminal.draw import draw_completeness
from icestream.clickhouse.client import Clients
from icestream.topics import ACTIVITY, DEAD_LETTERS, OFF_CPU_PROFILE_TYPE, SAMPLES
from sinks.clickhouse import retention
from sinks.clickhouse.sink import ClickHouseSink
from sinks.runner.ranges import InFlight, MessageRange
from sinks.tables.decode import Tables
from tests.api.conftest import Api
from tests.api.fill import START_S
from tests.data import messages as builders
from tests.data.messages import PERIOD_NS, batch_id
from tests.sinks.messages import tables

HOUR = 3600
WINDOW_S = 5
ROWS = 4
"""Samples of a window."""
Holes = dict[tuple[str, str], dict[str, Any]]


class Sent:
    """Stores windows by the real sink."""

    def __init__(self, clients: Clients) -> None:
        self._sink = ClickHouseSink(clients)
        self._offset = 0

    def store(self, topic: str, found: list[Any]) -> None:
        offsets = InFlight(self._offset, self._offset + len(found) - 1, "0" * 12)
        self._offset += len(found)
        self._sink.write(MessageRange("C", topic, 0, offsets, found, False))

    def windows(
        self, sequences: Iterable[int], host: str = "host-1", started_s: float = START_S, at: float | None = None,
        parts: int = 1, stored_parts: int | None = None, **fields: Any,
    ) -> None:  # fmt: skip
        """Window n was published 5 s x n after the start of its collector, or `at` plus 5 s for each one."""
        found: list[Tables] = []
        for i, sequence in enumerate(sequences):
            published_s = started_s + WINDOW_S * sequence if at is None else at + WINDOW_S * i
            for part in range(parts if stored_parts is None else stored_parts):
                of = builders.source(batch_id(sequence, host, int(started_s * 1e9), part, parts), offset=sequence)
                series = builders.sample_series({"host": f"{host}.example", "service": "checkout"})
                columns = {
                    "sample_offset_ms": np.arange(ROWS), "sample_count": np.ones(ROWS),
                    "sample_value": np.full(ROWS, PERIOD_NS), "sample_stack_id": np.ones(ROWS),
                }  # fmt: skip
                figures = {"period": PERIOD_NS, "configured_period": PERIOD_NS, "series": [series]} | fields
                data = builders.sample_batch(
                    of, int(published_s * 1000) - 4900, columns, host_id=host,
                    published_unix_nano=int(published_s * 1e9), **figures,
                )  # fmt: skip
                found.append(tables(SAMPLES, data))
        self.store(SAMPLES, found)

    def activity(self, sequences: Iterable[int], host: str = "host-1") -> None:
        found = []
        for n in sequences:
            published = (START_S + WINDOW_S * n) * 10**9
            data = builders.activity_batch(
                batch_id(n, host, START_S * 10**9), published, {}, host_id=host, published_unix_nano=published
            )
            found.append(tables(ACTIVITY, data))
        self.store(ACTIVITY, found)


@pytest.fixture
def sent(engine: str, database: str) -> Sent:
    return Sent(Clients(engine, database=database))


@pytest.fixture
def holes(api: Api) -> Callable[..., Holes]:
    """Asks for holes from one second to another after START_S."""

    def ask(first: float = 0, last: float = 600, **more: object) -> Holes:
        answer = api.json("/api/v1/completeness", start=START_S + first, end=START_S + last, **more)
        assert answer["complete"] == (answer["hosts"] > 0 and not answer["holes"])
        assert answer["known_from"] is None
        return {(hole["kind"], hole["host_id"]): hole for hole in answer["holes"]}

    return ask


def test_nothing_is_missing_where_every_window_came(sent: Sent, holes: Callable[..., Holes], api: Api) -> None:
    sent.windows(range(1, 121))
    sent.windows(range(1, 122), "host-2", parts=3)
    sent.activity(range(1, 100))
    assert holes() == {}
    assert holes(100, 200) == {}
    answer = api.json("/api/v1/completeness", start=START_S, end=START_S + 600)
    assert (answer["hosts"], answer["windows"], answer["missing_cpu_ns"]) == (2, 238, 0)
    assert answer["sampled_cpu_ns"] == pytest.approx(PERIOD_NS * ROWS * (119 + 3 * 119))


def test_what_is_older_than_the_batches_that_are_kept_is_not_known(sent: Sent, api: Api, client: Client) -> None:
    now_s = int(time.time())

    def ask(from_days: float, to_days: float) -> dict[str, Any]:
        times = {"start": now_s - int(from_days * 86_400), "end": now_s - int(to_days * 86_400)}
        return api.json("/api/v1/completeness", **times)

    sent.windows(range(1, 13), started_s=now_s - 3 * 86_400)
    assert ask(40, 30)["known_from"] is None  # nothing is ever dropped
    retention._Tables(client).drop_after("batches", "last_time", 14)
    try:
        old, half, young = ask(40, 30), ask(40, 2), ask(4, 2)
    finally:
        retention._Tables(client).drop_after("batches", "last_time", 0)  # other tests have these tables
    for answer in (old, half):
        kept_s = now_s - datetime.fromisoformat(answer["known_from"]).timestamp()
        assert 14 * 86_400 - 3600 < kept_s <= 14 * 86_400
        assert not answer["complete"]
    assert (old["hosts"], half["windows"], half["known_from"][:10]) == (0, 12, old["known_from"][:10])
    assert [hole["kind"] for hole in half["holes"]] == ["silent"]
    assert young["known_from"] is None
    told = f"(what is missing before {old['known_from']} is not known)"
    assert draw_completeness(old) == f"0 windows of 0 hosts {told}: nothing is known of this range"
    assert draw_completeness(half).startswith(f"12 windows of 1 hosts (what is missing before {half['known_from']}")


def test_what_was_dropped_before_the_retention_was_raised_is_not_known(sent: Sent, api: Api, client: Client) -> None:
    now_s = int(time.time())
    sent.windows(range(1, 13), started_s=now_s - 20 * 86_400)

    def ask(from_days: float) -> tuple[str | None, bool]:
        answer = api.json("/api/v1/completeness", start=now_s - int(from_days * 86_400), end=now_s - 20 * 86_400 + 60)
        return answer["known_from"], answer["complete"]

    def set_made(days_ago: int) -> None:
        made = f"UPDATE applied = now() - INTERVAL {days_ago} DAY WHERE 1 SETTINGS mutations_sync = 1"
        client.command(f"ALTER TABLE schema_migrations {made}")

    oldest = datetime.fromtimestamp(now_s - 20 * 86_400 + WINDOW_S, UTC)
    set_made(100)
    retention._Tables(client).drop_after("batches", "last_time", 90)
    try:
        raised = ask(30)
        retention._Tables(client).drop_after("batches", "last_time", 0)
        for known_from, complete in (raised, ask(30)):
            assert known_from is not None
            assert abs((datetime.fromisoformat(known_from) - oldest).total_seconds()) < 2 * WINDOW_S
            assert not complete
        assert ask(19.9999)[0] is None
        sent.windows(range(1, 13), "host-2", started_s=now_s - 25 * 86_400)  # older ones, as of a replay
        assert ask(24)[0] is None
        replayed_from = ask(30)[0]
        assert replayed_from is not None
        assert datetime.fromisoformat(replayed_from) < oldest - timedelta(days=4)
        set_made(25)  # so nothing is older
        assert ask(30)[0] is None
    finally:  # other tests have these tables
        retention._Tables(client).drop_after("batches", "last_time", 0)
        set_made(0)


def test_an_empty_range_has_no_holes(sent: Sent, holes: Callable[..., Holes]) -> None:
    assert holes() == {}
    sent.windows(range(1, 121))
    assert holes(-HOUR, -10) == {}  # before the host was there
    assert holes(2 * HOUR, 3 * HOUR) == {}  # long after it went


def test_of_the_future_and_of_a_range_without_hosts_nothing_is_known(sent: Sent, api: Api) -> None:
    now_s = int(time.time())
    sent.windows(range(1, 13), started_s=now_s - 60)
    for start_s, end_s in ((now_s + 2 * HOUR, now_s + 3 * HOUR), (now_s - 9 * HOUR, now_s - 8 * HOUR)):
        answer = api.json("/api/v1/completeness", start=start_s, end=end_s)
        assert (answer["complete"], answer["hosts"], answer["holes"]) == (False, 0, [])
    assert api.json("/api/v1/completeness", start=now_s - 30, end=now_s + HOUR)["complete"]


def test_missing_numbers_are_missing_windows_with_their_cpu(sent: Sent, holes: Callable[..., Holes], api: Api) -> None:
    sent.windows([*range(1, 50), *range(53, 121)])
    (hole,) = holes().values()
    assert (hole["kind"], hole["host_id"], hole["count"]) == ("missing_windows", "host-1", 3)
    assert hole["seconds"] == pytest.approx(15)
    assert hole["missing_cpu_ns"] == pytest.approx(3 * ROWS * PERIOD_NS)
    assert (
        api.json("/api/v1/completeness", start=START_S, end=START_S + 600)["missing_cpu_ns"] == hole["missing_cpu_ns"]
    )
    assert holes(0, 200) == {}  # it lies after
    assert holes(300, 600) == {}  # it lies before
    assert holes(0, 250)["missing_windows", "host-1"]["seconds"] == pytest.approx(5)  # only a part lies in the range
    assert holes(255, 600)["missing_windows", "host-1"]["seconds"] == pytest.approx(5)


def test_a_gap_that_is_longer_than_the_range_fills_it(sent: Sent, holes: Callable[..., Holes]) -> None:
    sent.windows([*range(1, 10), *range(3001, 3100)])  # more than four hours
    hole = holes(14000, 14600)["missing_windows", "host-1"]
    assert hole["seconds"] == pytest.approx(600)
    assert 110 <= hole["count"] <= 120
    assert holes(14900, 15400)["missing_windows", "host-1"]["seconds"] == pytest.approx(100)


def test_a_message_of_a_window_that_is_missing_is_a_share_of_it(sent: Sent, holes: Callable[..., Holes]) -> None:
    sent.windows(range(1, 50), parts=4)
    sent.windows([50], parts=4, stored_parts=3)
    sent.windows(range(51, 121), parts=4)
    hole = holes()["missing_windows", "host-1"]
    assert hole["count"] == 1
    assert hole["missing_cpu_ns"] == pytest.approx(ROWS * PERIOD_NS, rel=0.02)


def test_what_is_sent_again_fills_the_gap_and_counts_once(sent: Sent, holes: Callable[..., Holes]) -> None:
    sent.windows([*range(1, 50), *range(53, 121)])
    sent.windows(range(48, 55))
    sent.windows(range(1, 121))
    assert holes() == {}


def test_a_collector_that_starts_again_is_a_hole_between_its_runs_only(sent: Sent, holes: Callable[..., Holes]) -> None:
    sent.windows(range(1, 21))  # until 100 s; killed at 104 s, with its open window
    sent.windows(range(1, 101), started_s=START_S + 112)  # its sequence begins again
    (hole,) = holes().values()
    assert (hole["kind"], hole["count"]) == ("not_running", 1)
    assert hole["seconds"] == pytest.approx(12)
    assert holes(112, 600) == {}
    assert holes(106, 600)["not_running", "host-1"]["seconds"] == pytest.approx(6)


def test_a_host_that_starts_within_the_range_is_no_hole(sent: Sent, holes: Callable[..., Holes]) -> None:
    sent.windows(range(1, 81), started_s=START_S + 200)
    assert holes() == {}


def test_a_host_that_falls_silent_is_told_until_the_end(sent: Sent, holes: Callable[..., Holes]) -> None:
    sent.windows(range(1, 61))  # until 300 s
    assert holes(0, 400) == {}  # a batch may take two minutes
    assert holes()["silent", "host-1"]["seconds"] == pytest.approx(300)
    assert holes(1000, 1600)["silent", "host-1"]["seconds"] == pytest.approx(600)


def test_an_idle_host_sends_once_a_minute_and_is_not_silent(sent: Sent, holes: Callable[..., Holes]) -> None:
    for n in range(1, 11):
        sent.windows([n], at=START_S + 60 * n)
    assert holes() == {}


def test_a_clock_that_is_set_makes_no_hole(sent: Sent, holes: Callable[..., Holes]) -> None:
    sent.windows(range(1, 61))
    sent.windows(range(61, 100), at=START_S + 300 - 3 * HOUR)  # back
    sent.windows(range(100, 160), at=START_S + 305)  # and forth
    assert holes() == {}
    sent.windows([*range(1, 10), *range(12, 60)], "host-2")
    sent.windows(range(62, 120), "host-2", at=START_S + 100)  # back, with a gap of two windows
    hole = holes(0, 390)["missing_windows", "host-2"]
    assert hole["count"] == 4
    assert hole["seconds"] == pytest.approx(20, rel=0.25)


def test_losses_that_collectors_report_are_told_with_their_cpu(
    sent: Sent, holes: Callable[..., Holes], api: Api
) -> None:
    sent.windows([*range(1, 50), *range(52, 121)])
    sent.windows([121], lost_samples=3)
    sent.windows([122], dropped_samples=40)
    sent.windows([123], profile_type=OFF_CPU_PROFILE_TYPE, lost_samples=9, period=1, configured_period=0)
    found = holes(0, 700)
    assert {kind: hole["count"] for (kind, _), hole in found.items()} == {
        "missing_windows": 2, "lost_samples": 3, "dropped_samples": 40, "lost_waits": 9
    }  # fmt: skip
    assert found["lost_samples", "host-1"]["missing_cpu_ns"] == 3 * PERIOD_NS
    assert found["dropped_samples", "host-1"]["missing_cpu_ns"] == 40 * PERIOD_NS
    assert found["lost_waits", "host-1"]["missing_cpu_ns"] is None
    missing = api.json("/api/v1/completeness", start=START_S, end=START_S + 700)["missing_cpu_ns"]
    assert missing == 43 * PERIOD_NS  # the dropped samples are those of the missing windows
    assert "lost_samples" not in {kind for kind, _ in holes(0, 600)}


def test_a_lowered_frequency_is_told_and_no_cpu_is_missing(sent: Sent, holes: Callable[..., Holes]) -> None:
    sent.windows(range(1, 61))
    sent.windows(range(61, 81), period=2 * PERIOD_NS)
    sent.windows(range(81, 121))
    (hole,) = holes().values()
    assert (hole["kind"], hole["count"], hole["missing_cpu_ns"]) == ("lower_rate", 20, None)
    assert (hole["host_id"], hole["host"]) == ("host-1", "host-1.example")
    assert hole["seconds"] == pytest.approx(100)
    assert "instead of" in hole["detail"]


def test_missing_activity_is_told_on_its_own(sent: Sent, holes: Callable[..., Holes]) -> None:
    sent.windows(range(1, 121))
    sent.activity([*range(1, 50), *range(52, 100)])
    (hole,) = holes().values()
    assert (hole["kind"], hole["count"], hole["missing_cpu_ns"]) == ("missing_activity", 2, None)


def test_dead_letters_are_told_once_each(sent: Sent, holes: Callable[..., Holes]) -> None:
    headers: list[tuple[str, str | bytes | None]] = [
        ("icestream.topic", b"icestream.raw"), ("icestream.partition", b"0"), ("icestream.error", b"<b>not protobuf"),
    ]  # fmt: skip
    letters = [
        Message(
            topic=DEAD_LETTERS, key=b"host-1", timestamp=(1, (START_S + at) * 1000),
            headers=[*headers, ("icestream.offset", str(offset).encode())],
        )
        for at, offset in ((10, 1), (20, 2), (20, 2), (700, 3))
    ]  # fmt: skip
    sink = ClickHouseSink
    sent.store(DEAD_LETTERS, [sink.decode(sent._sink, letter, "C") for letter in letters])
    (hole,) = holes().values()
    assert (hole["kind"], hole["host_id"], hole["count"]) == ("dead_letters", "host-1", 2)
    assert hole["detail"] == "icestream.raw: <b>not protobuf"


def test_a_selector_chooses_the_hosts_with_such_samples(sent: Sent, holes: Callable[..., Holes]) -> None:
    sent.windows([*range(1, 50), *range(53, 121)])
    sent.windows([*range(1, 10), *range(13, 121)], "host-2")
    assert set(holes(selector='{host="host-2.example"}')) == {("missing_windows", "host-2")}
    assert len(holes(selector='{service="checkout"}')) == 2
    assert len(holes(selector='{service="checkout", operation="GET /a"}')) == 2  # hosts miss them of all operations
    assert holes(selector='{service="cart"}') == {}


def test_the_largest_holes_come_first_and_the_others_are_counted(sent: Sent, api: Api) -> None:
    for number in range(1, 5):
        sent.windows([*range(1, 20), *range(20 + number, 121)], f"host-{number}")
    answer = api.json("/api/v1/completeness", start=START_S, end=START_S + 600, limit=2)
    assert [hole["host_id"] for hole in answer["holes"]] == ["host-4", "host-3"]
    assert answer["more"] == 2
    assert answer["missing_cpu_ns"] == pytest.approx(10 * ROWS * PERIOD_NS)


@pytest.mark.parametrize("wrong", [{"start": "x"}, {"start": "2", "end": "1"}, {"selector": "{"}, {"limit": "0"}])
def test_wrong_parameters_are_refused(api: Api, wrong: dict[str, str]) -> None:
    assert api.get("/api/v1/completeness", **wrong).status_code in (400, 422)


def test_a_range_of_all_time_is_answered(sent: Sent, api: Api) -> None:
    sent.windows([1, 3])
    answer = api.json("/api/v1/completeness", start="0", end=str(4_000_000_000))
    assert "missing_windows" in {hole["kind"] for hole in answer["holes"]}
