"""Labels of series that are kept in memory are those that ClickHouse says."""

import random
import sys
import time

import pytest

from api.queries.database import Database
from api.queries.labels import known_series
from api.queries.labels.known_series import KnownSeries, SeenSeries
from api.queries.labels.labels import SelectedSeries, read_label_names, read_label_values
from api.queries.labels.seen_series import read_seen_series
from api.queries.selection.selector import Matcher
from api.queries.selection.time_range import TimeRange
from api.settings import ApiSettings
from icestream.ids import series_id
from icestream.times import HOUR_NS
from tests.api.queries.rollup_store import HOUR, T0, Store
from tests.data.tables import insert_columns, insert_series, to_datetime

TYPES = ("process_cpu:cpu:nanoseconds:cpu:nanoseconds", "off_cpu:wait:nanoseconds:wait:nanoseconds")
NAMES, VALUES = ("service", "pod", "Ä", "zone"), ("a", "b", "ä", "\N{SNOWMAN}")
ALL = TimeRange(T0 * 10**9, T0 * 10**9 + 4 * HOUR_NS)


def insert_seen(store: Store, labels: list[dict[str, str]], hour: int = 0, profile_type: str = TYPES[0]) -> None:
    insert_columns(
        store.client, "series_seen", series_id=[series_id(each.items()) for each in labels],
        start_time=to_datetime(T0 + hour * HOUR), profile_type=profile_type,
    )  # fmt: skip


def known(store: Store) -> KnownSeries:
    return KnownSeries(Database(store.clients, ApiSettings()))


def seen(series: KnownSeries) -> list[SeenSeries]:
    found = series.seen(None, (), ALL)
    assert found is not None
    return found


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_those_of_clickhouse(store: Store, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = random.Random(seed)
    values = ("", *VALUES)  # a label without a value is none
    labels = [{name: drawn.choice(values) for name in drawn.sample(NAMES, drawn.randint(0, 4))} for _ in range(60)]
    insert_series(store.client, labels, to_datetime(T0))
    for hour in range(4):
        for profile_type in TYPES:
            insert_seen(store, drawn.sample(labels, 15), hour, profile_type)
    in_memory = known(store)

    def ask() -> list[object]:
        operators, of_clickhouse = ("=", "!="), known(store)
        first = drawn.randrange(4)
        time_range = TimeRange(ALL.start_unix_nano + first * HOUR_NS, ALL.end_unix_nano)
        matchers = tuple(
            Matcher(drawn.choice(NAMES), drawn.choice(operators), drawn.choice(("", *VALUES)))
            for _ in range(drawn.randint(0, 2))
        )
        types, kept = drawn.choice([None, [TYPES[1]], list(TYPES)]), drawn.choice([None, (), ("pod", "Ä")])
        drawn_limit = drawn.choice((5, 1000))
        selected, name = SelectedSeries(matchers, time_range), drawn.choice(NAMES)

        def answers(series: KnownSeries) -> list[object]:
            return [
                [(each.profile_type, sorted(each.labels.items()))
                 for each in read_seen_series(series, types, matchers, time_range, kept, drawn_limit)],
                read_label_names(series, selected, 1000),
                read_label_values(series, name, selected, "", 1000),
                read_label_values(series, name, selected, "", 1),
            ]  # fmt: skip

        ours = answers(in_memory)
        with monkeypatch.context() as patched:
            patched.setattr(known_series, "_MOST", -1)
            assert of_clickhouse.seen(types, matchers, time_range) is None
            assert ours == answers(of_clickhouse)
        return ours

    assert any(ask()[0] for _ in range(15))


def test_a_series_whose_labels_come_later_is_found_then(store: Store) -> None:
    labels, series = [{"service": "cart"}], known(store)
    insert_seen(store, labels)
    assert seen(series) == []
    insert_series(store.client, labels, to_datetime(T0))
    assert seen(series) == [SeenSeries(TYPES[0], {"service": "cart"})]


def test_labels_are_read_once(store: Store) -> None:
    labels, series = [{"service": "cart"}, {"service": "shop"}], known(store)
    insert_series(store.client, labels, to_datetime(T0))
    insert_seen(store, labels)
    before = seen(series)
    store.client.command("TRUNCATE TABLE series")
    assert seen(series) == before != []


def test_a_series_is_found_once_it_was_seen_for_a_second(store: Store) -> None:
    first, second, series = [{"service": "cart"}], [{"service": "shop"}], known(store)
    insert_series(store.client, [*first, *second], to_datetime(T0))
    insert_seen(store, first)
    assert len(seen(series)) == 1
    insert_seen(store, second)
    time.sleep(1.0)
    assert len(seen(series)) == 2


def test_clickhouse_is_asked_nothing_twice_in_a_second(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    series = known(store)
    insert_series(store.client, [{"service": "cart"}], to_datetime(T0))
    insert_seen(store, [{"service": "cart"}])
    before = seen(series)
    monkeypatch.setattr(series, "database", None)
    assert seen(series) == before != []


def test_an_answer_is_not_kept_for_long_where_rows_come_and_go(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_series, "_ANSWER_S", 0.5)
    first, second, series = [{"service": "cart"}], [{"service": "shop"}], known(store)
    insert_series(store.client, [*first, *second], to_datetime(T0))
    insert_seen(store, first)
    assert seen(series) == [SeenSeries(TYPES[0], first[0])]
    store.client.command("TRUNCATE TABLE series_seen")
    insert_seen(store, second)  # the table has as many rows as before
    time.sleep(0.5)
    assert seen(series) == [SeenSeries(TYPES[0], second[0])]


def test_answers_that_are_kept_are_few_and_small(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_series, "_ANSWERS", 3)
    monkeypatch.setattr(known_series, "_ANSWER_SERIES", 5)
    labels, series = [{"service": str(number)} for number in range(8)], known(store)
    insert_series(store.client, labels, to_datetime(T0))
    for hour in range(4):
        insert_seen(store, labels[: 8 if hour == 0 else 4], hour)
    for hour in (3, 2, 1, 0, 3):
        found = series.seen(None, (), TimeRange(ALL.start_unix_nano + hour * HOUR_NS, ALL.end_unix_nano))
        assert found is not None
        assert len(found) == (8 if hour == 0 else 4)
    assert len(series._answers) == 3
    assert all(len(each.series) == 4 for each in series._answers.values())


def test_memory_for_labels_is_bounded_and_the_least_used_are_forgotten(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_series, "_KEPT_BYTES", 100_000)
    series = known(store)
    often = [{"service": "often"}]
    insert_series(store.client, often, to_datetime(T0))
    for hour in range(4):
        many = [{"service": f"{hour}-{each}", "text": "x" * 1000} for each in range(40)]
        insert_series(store.client, many, to_datetime(T0))
        insert_seen(store, [*often, *many], hour)
        found = series.seen(None, (), TimeRange(ALL.start_unix_nano + hour * HOUR_NS, ALL.end_unix_nano))
        assert found is not None
        assert len(found) == 41
    kept = sum(
        sys.getsizeof(labels) + sum(map(sys.getsizeof, (*labels, *labels.values())))
        for labels in series._labels.values()
    )
    assert kept < 150_000
    assert series_id(often[0].items()) in series._labels


def test_clickhouse_answers_about_more_series_than_memory_holds(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_series, "_KEPT_BYTES", 20_000)
    series, few = known(store), TimeRange(ALL.start_unix_nano + HOUR_NS, ALL.end_unix_nano)
    labels = [{"service": str(each), "text": "x" * 1000} for each in range(40)]
    insert_series(store.client, labels, to_datetime(T0))
    insert_seen(store, labels)
    insert_seen(store, labels[:5], hour=1)
    assert len(seen(series)) == 40  # the first question finds how large they are
    assert series.seen(None, (), ALL) is None
    found = series.seen(None, (), few)
    assert found is not None
    assert len(found) == 5
    assert read_label_values(series, "service", SelectedSeries((), ALL), "", 1000) == sorted(map(str, range(40)))
