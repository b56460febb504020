"""The heaviest requests, of candidates: what is listed is exact, and what may be missing is told."""

from typing import Any

import pytest

from api.queries.database import Database
from api.queries.selection.selection import Selection
from api.queries.traces.heaviest_traces import LastTrace, MinCpu, read_heaviest_traces
from api.queries.traces.heavy_candidates import read_candidates
from api.terminal.draw_requests import draw_traces
from icestream.clickhouse.client import Clients
from icestream.clickhouse.recent_operations import HEAVIEST, RECENT_DAYS
from tests.api.conftest import Api
from tests.api.queries.recent_store import SELECTORS, RecentStore
from tests.api.queries.rollup_store import DAY, HOUR
from tests.data.tables import to_datetime

ORDERS = ("cpu_ns", "thread_cpu_ns", "sampled_cpu_ns")
SEEDS = pytest.mark.parametrize(
    "store", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2))], indirect=True
)


@pytest.fixture
def store(engine: str, database: str, request: pytest.FixtureRequest) -> RecentStore:
    return RecentStore(Clients(engine, database=database), getattr(request, "param", 0))


def read(database: Database, selection: Selection, order: str = "cpu_ns", **named: Any) -> Any:
    arguments = {"min_cpu": MinCpu(), "last": None, "limit": 1000} | named
    return read_heaviest_traces(database, selection, order, **arguments)


def check(store: RecentStore, selection: Selection, order: str = "cpu_ns", **named: Any) -> None:
    """Compares candidates with the list of all rows, where no ten minutes have more requests than are kept of them."""
    answer, exact = (read(database, selection, order, **named) for database in (store.of_sums, store.of_rows))
    assert exact.complete_above_ns is None
    assert answer.complete_above_ns == 0
    assert answer.traces == exact.traces


@SEEDS
def test_candidates_are_listed_as_if_all_rows_were_read(store: RecentStore) -> None:
    store.store(store.requests(70), blocks=4)
    for order in ORDERS:
        check(store, store.selection(store.random.choice(SELECTORS)), order)
        check(store, store.selection(store.random.choice(SELECTORS), 123.456, 2345.678), order)
        check(store, store.selection(), order, min_cpu=MinCpu(5_000_000, 4_000_000, 3_000_000))


@SEEDS
def test_of_more_requests_those_are_listed_that_are_above_a_bound(store: RecentStore) -> None:
    store.store(store.requests(1000, seconds=60), blocks=3)
    for order in ORDERS:
        answer, exact = (read(each, store.selection(), order) for each in (store.of_sums, store.of_rows))
        above = [one for one in exact.traces if one[order] > answer.complete_above_ns]
        assert HEAVIEST <= len(above) < 300
        assert answer.traces[: len(above)] == above


def test_a_request_is_found_whose_cpu_was_stored_in_pieces(store: RecentStore) -> None:
    others = store.requests(200, seconds=60)
    store.store(others, blocks=2)
    heaviest = max(one["thread_cpu_ns"] for one in others)
    piece = store.request("GET /a", "cart", 30, heaviest // 4)
    pieces = [piece | {"service": service} for service in ("cart", "shop", "pay") for _ in range(2)]
    store.store(pieces, blocks=3)
    (first,) = read(store.of_sums, store.selection(), limit=1).traces
    assert (first["trace_id"], first["cpu_ns"]) == (piece["trace_id"].hex(), 6 * piece["thread_cpu_ns"])


def test_of_samples_only_those_candidates_are_read_that_may_be_above_the_bound(store: RecentStore) -> None:
    clocked = [store.request("GET /a", "cart", number, 50_000_000 + number) for number in range(59)]
    store.insert("activity", clocked)
    sampled = [store.request("", "shop", number, 40_000_000 + number) for number in range(59)]
    store.store_samples(sampled, 1)
    light = read_candidates(store.of_sums, store.selection(), "cpu_ns", 10, of_few=True)
    assert light is not None
    assert light.trace_ids == [one["trace_id"].hex() for one in reversed(clocked[-15:])]
    store.store_samples(sampled[:1], 2)
    heavy = read_candidates(store.of_sums, store.selection(), "cpu_ns", 10, of_few=True)
    assert heavy is not None
    assert heavy.trace_ids == [*light.trace_ids, sampled[0]["trace_id"].hex()]
    (first,) = read(store.of_sums, store.selection(), limit=1).traces
    assert (first["trace_id"], first["cpu_ns"]) == (sampled[0]["trace_id"].hex(), 120_000_000)


def test_a_request_is_not_named_by_a_span_of_another_day(store: RecentStore) -> None:
    one = store.request("GET /a", "cart", 30, 1_000_000)
    store.store([one])
    of_days_ago = one | {"operation": "GET /old", "start_time": to_datetime(store.start - 3 * DAY)}
    row = {name: of_days_ago[name] for name in ("trace_id", "span_id", "service", "host_id", "start_time")}
    store.insert("spans", [row | {"name": "GET /old", "end_time": to_datetime(store.start - 3 * DAY + 1)}])
    for database in (store.of_sums, store.of_rows):
        (listed,) = read(database, store.selection()).traces
        assert listed["start_unix_nano"] == (store.start + 30) * 10**9


def test_pages_of_candidates_have_each_request_once(store: RecentStore) -> None:
    store.store(store.requests(120))
    pages: list[dict[str, Any]] = []
    while True:
        last = LastTrace(pages[-1]["cpu_ns"], pages[-1]["trace_id"]) if pages else None
        page = read(store.of_sums, store.selection(), last=last, limit=7).traces
        if not page:
            break
        pages += page
    assert pages == read(store.of_rows, store.selection()).traces


def test_a_first_page_is_full_although_the_heaviest_candidates_are_not_selected(store: RecentStore) -> None:
    store.store(store.requests(1500, seconds=180))
    for first, last, selector in ((59, 149, "{}"), (0, 180, '{operation="GET /a"}')):
        for order in ORDERS:
            answer = read(store.of_sums, store.selection(selector, first, last), order, limit=6)
            assert answer.complete_above_ns > 0
            assert len(answer.traces) == 6


def test_a_block_that_comes_again_is_not_counted_again(store: RecentStore) -> None:
    rows = store.requests(10)
    for _ in range(2):
        store.insert("activity", rows, token="0/1/2-3")
    check(store, store.selection())
    sums = store.client.query(
        "SELECT sum(thread_cpu_ns), sum(measured) FROM recent_operations WHERE minutes = 1"
    ).result_rows
    assert sums == [(sum(one["thread_cpu_ns"] for one in rows), 10)]


def test_requests_that_a_job_has_replaced_have_the_cpu_of_their_rows(store: RecentStore) -> None:
    rows = store.requests(30)
    store.store(rows)
    store.client.command("TRUNCATE TABLE activity")
    store.insert("activity", [one | {"thread_cpu_ns": 1 + one["thread_cpu_ns"] // 3} for one in rows[10:]])
    for order in ORDERS:
        check(store, store.selection(), order)


def test_a_trace_counts_with_all_its_samples_whether_their_operations_were_known_or_not(store: RecentStore) -> None:
    rows = [store.request("GET /a", "shop", 30, 10**8 + number) for number in range(HEAVIEST + 5)]
    heaviest = store.request("GET /a", "shop", 30, 2 * 10**8 - 1)
    half = store.sample(heaviest, 0.5)
    store.insert("samples", [*(store.sample(one, 1) for one in rows), half, half | {"known_operation": ""}])
    answer, exact = (
        read(each, store.selection(), "sampled_cpu_ns", limit=10) for each in (store.of_sums, store.of_rows)
    )
    assert answer.traces == exact.traces


def test_rows_are_read_where_candidates_are_not_kept_or_were_not_chosen(store: RecentStore) -> None:
    store.store(store.requests(10))
    old = store.selection('{host="host-1"}'), store.selection("{}", -(RECENT_DAYS + 1) * DAY)
    assert [read(store.of_sums, one).complete_above_ns for one in old] == [None, None]
    assert read(store.of_sums, store.selection("{}", -HOUR)).complete_above_ns is not None
    assert read(store.of_sums, store.selection(), only_kept=True).complete_above_ns is None


def test_the_terminal_says_that_requests_may_be_missing(api: Api) -> None:
    answer = api.json("/api/v1/traces")
    trace = dict.fromkeys(("cpu_ns", "sampled_cpu_ns", "samples", "sampled_cpu_low_ns", "sampled_cpu_high_ns"), 0)
    more = {"trace_id": "0" * 32, "service": "cart", "operation": "", "start_unix_nano": None, "duration_ns": None}
    answer["traces"] = [trace | more]
    assert "may be missing" not in draw_traces(answer)
    drawn = draw_traces(answer | {"complete_above_ns": 3_000_000})
    assert "those may be missing that used at most 3 ms in each minute" in drawn
