"""An operation has the same samples in every answer, and all operations with what belongs to none have all of them."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from clickhouse_connect.driver.client import Client

from api.queries.labels.known_series import KnownSeries
from api.queries.labels.labels import SelectedSeries, read_label_values
from api.queries.operations.operations import read_operations
from api.queries.selection.selection import Selection
from api.queries.selection.selector import Matcher, parse
from api.queries.selection.time_range import TimeRange
from api.queries.stacks.labelled_stack_values import read_labelled_stack_values
from api.queries.stacks.stack_values import read_selected_stacks
from api.queries.stacks.timeline import read_timeline
from api.queries.traces.heaviest_traces import MinCpu, read_heaviest_traces
from icestream.clickhouse.client import Clients
from icestream.times import HOUR_NS
from tests.api.conftest import Api
from tests.api.fill import START_S
from tests.api.queries.operations_data import Request, insert_requests
from tests.api.queries.renamed_requests import SPAN_NAMES, Key, RenamedRequests
from tests.api.queries.request_store import EVENING, OPERATIONS
from tests.api.queries.rollup_store import DAY, HOUR, T0, select
from tests.data.tables import insert_rows, to_datetime
from tests.sinks.clusters import Shards

_OF_SERVICES = ('{service="cart"}', '{service=~"ch.*"}', "{}", '{service!="cart", operation!="GET /a"}')
_OF_OTHERS = ('{host="a", operation=~"|render"}', '{service="cart", host="b", operation=~"GET.*"}')


@pytest.fixture
def requests(engine: str, database: str) -> RenamedRequests:
    return RenamedRequests(Clients(engine, database=database))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak), pytest.param(2, marks=pytest.mark.soak)])
def test_every_answer_has_the_same_samples_of_an_operation(requests: RenamedRequests, seed: int) -> None:
    """Also where spans, activity and samples of one request name their services differently, or where only a label of
    the series names the operation."""
    requests.random = random.Random(seed)
    requests.come(60)
    for selector in (*_OF_SERVICES, *_OF_OTHERS):
        check(requests, some_hours(requests.random, selector))
    requests.build()
    check(requests, some_hours(requests.random, _OF_SERVICES[1]))
    check(requests, select(parse('{service="cart"}'), T0, T0 + 2 * DAY))


def test_also_over_several_shards(engine: str) -> None:
    shards = Shards(engine, "same_operations_of_shards")
    requests = RenamedRequests(shards, shards.cluster)
    requests.come(30, first=0, days=0.1)
    check(requests, select(parse(_OF_SERVICES[0]), T0, T0 + DAY))


def test_slow_requests_have_the_samples_and_the_cpu_that_other_answers_give_them(api: Api, client: Client) -> None:
    fast = Request(1, "GET /", inner_samples=1, cpu_ns=8_000_000, ended=False, active_service="pay")
    slow = replace(fast, number=2, inner_samples=5, cpu_ns=80_000_000, duration_ns=500_000_000)
    insert_requests(client, [fast, slow])
    insert_rows(client, "spans", [entry_span(each) for each in (fast, slow)])
    selector = '{service="shop", operation="GET /"}'
    answer = api.json("/api/v1/operations/slow", selector=selector, fast=10)
    assert (answer["samples"], answer["baseline_samples"]) == (6, 2)
    assert (answer["slow"]["mean_cpu_ns"], answer["fast"]["mean_cpu_ns"]) == (80_000_000, 8_000_000)
    (row,) = api.json("/api/v1/operations", selector=selector)["operations"]
    assert (row["samples"], row["mean_cpu_ns"]) == (8, 44_000_000)


def entry_span(request: Request) -> dict[str, object]:
    start_s = START_S + request.at_s
    return {
        "trace_id": request.trace_id, "span_id": request.entry_id, "host_id": "host-1", "service": request.service,
        "name": request.operation, "operation": request.operation, "start_time": to_datetime(start_s),
        "end_time": to_datetime(start_s + request.duration_ns / 1e9),
    }  # fmt: skip


def some_hours(choose: random.Random, selector: str) -> Selection:
    start, end = sorted(round(EVENING + choose.uniform(-HOUR, 8 * HOUR), 3) for _ in range(2))
    return select(parse(selector), start, max(end, start + HOUR))


def check(requests: RenamedRequests, selection: Selection) -> None:
    expected = requests.sums(selection)
    assert of_timeline(requests, selection) == expected
    of_operation: Counter[str] = Counter()
    for (_, operation), value in expected.items():
        of_operation[operation] += value
    assert of_merge(requests, selection) == of_operation
    for operation in (requests.random.choice(OPERATIONS), requests.random.choice(SPAN_NAMES), ""):
        of_one = replace(selection, matchers=(*selection.matchers, Matcher("operation", "=", operation)))
        assert read_selected_stacks(requests.database, of_one, 100).total == of_operation[operation]
    traces = read_heaviest_traces(requests.database, selection, "sampled_cpu_ns", MinCpu(), None, 1000).traces
    with_operation = replace(selection, matchers=(*selection.matchers, Matcher("operation", "!=", "")))
    of_traces = requests.sums(with_operation, traced=True)
    assert sum(trace["sampled_cpu_ns"] for trace in traces) == of_traces.total()
    values = set(read_label_values(KnownSeries(requests.database), "operation", series_of(selection), "", 100))
    assert values >= {operation for operation in of_operation if operation}
    if all(each.label in ("service", "operation") for each in selection.matchers):
        check_operations(requests, selection, values)


def check_operations(requests: RenamedRequests, selection: Selection, values: set[str]) -> None:
    answer = read_operations(requests.database, selection)
    selection = replace(selection, time_range=answer.time_range)
    expected = requests.sums(selection, "operation")
    traced = {row["service"] for row in answer.all}
    assert traced >= {service for service, operation in expected if operation}
    found = {(row["service"], row["operation"]): row["sampled_cpu_ns"] for row in answer.all}
    assert without_zeros(found) == {key: value for key, value in expected.items() if key[0] in traced}
    for service in traced:
        all_samples = select((Matcher("service", "=", service),), *of_seconds(selection))
        of_service = sum(value for key, value in found.items() if key[0] == service)
        assert of_service == read_selected_stacks(requests.database, all_samples, 100).total
    assert values >= {row["operation"] for row in answer.matching if of_range(row)}
    hours = read_operations(requests.database, replace(selection, time_range=whole_hours(selection)))
    assert values == {row["operation"] for row in hours.matching if of_range(row)}


def of_range(row: dict[str, int]) -> bool:
    """Whether a row of an answer says something of the time range, not only of the period before."""
    return any(row[name] for name in ("requests", "thread_cpu_ns", "samples"))


def of_timeline(requests: RenamedRequests, selection: Selection) -> dict[Key, int]:
    line = read_timeline(requests.database, selection, HOUR * 1000, ("service", "operation"))
    return without_zeros(dict(zip(line.labels, line.values.sum(axis=1).tolist(), strict=True)))


def of_merge(requests: RenamedRequests, selection: Selection) -> Counter[str]:
    grouped = read_labelled_stack_values(requests.database, selection, "operation", 1000)
    sums: Counter[str] = Counter()
    for value, row in zip(grouped.stacks.values.tolist(), grouped.value_of_stack.tolist(), strict=True):
        sums[grouped.values[row]] += value
    return sums


def without_zeros(sums: dict[Key, int]) -> dict[Key, int]:
    return {key: value for key, value in sums.items() if value}


def of_seconds(selection: Selection) -> tuple[float, float]:
    return selection.time_range.start_unix_nano / 1e9, selection.time_range.end_unix_nano / 1e9


def series_of(selection: Selection) -> SelectedSeries:
    return SelectedSeries(selection.matchers, selection.time_range)


def whole_hours(selection: Selection) -> TimeRange:
    start, end = selection.time_range.start_unix_nano, selection.time_range.end_unix_nano
    return TimeRange(start // HOUR_NS * HOUR_NS, -(-end // HOUR_NS) * HOUR_NS)
