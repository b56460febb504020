import dataclasses
from collections import Counter

import numpy as np
import pytest

from icestream.messages import identify
from icestream.messages.raw import RawColumns, decode_raw
from streams.operators import deduplicate
from streams.operators.deduplicate import MOST_PERIODS, PERIODS, Announced, Announcement, Period, unannounced
from tests.data.windows import window

DAY_NS = 86_400 * 10**9
FIRST = [[3], [5, 4], [7, 6, 5, 4], [9, 8]]
CALLERS = [[6, 5, 4], [8], [5, 4]]
"""Their last nodes are nodes of the first ones."""
MIXED = [[6, 5, 4], [11, 10], [3], [12, 5, 4], [8], []]


@pytest.mark.parametrize("period_ns", [DAY_NS, DAY_NS // 24])
def test_only_a_few_periods_are_remembered(period_ns: int) -> None:
    announced = Announced(period_ns)
    first = announced.period(0)
    assert announced.period(period_ns - 1) is first
    for number in range(1, PERIODS + 1):
        announced.period(number * period_ns)
    assert len(announced.periods) == PERIODS
    assert announced.period(0) is not first


def test_hosts_whose_spools_are_at_many_hours_do_not_make_each_other_be_announced_again() -> None:
    """But what was announced a period ago, in which live batches came, is announced again."""
    announced, start, hours = Announced(DAY_NS // 24), 100 * DAY_NS, 30
    hour_ns, minute_ns = announced.period_ns, announced.period_ns // 60
    now, counts, batch = start + hours * hour_ns, Counter[int](), _batch(FIRST)
    for minute in range(90):
        for hour in range(hours):
            for unix_nano in (now + minute * minute_ns, start + hour * hour_ns):
                found = _unannounced(announced.period(unix_nano), batch)
                counts[unix_nano // hour_ns - start // hour_ns] += found is not None
        assert len(announced.periods) <= hours + 2
    assert counts == dict.fromkeys(range(hours), 2) | {hours: 1, hours + 1: 1}


def test_the_ids_of_all_periods_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    limit, most = 1000, 0
    monkeypatch.setattr(deduplicate, "MAX_IDS", limit)
    announced = Announced(DAY_NS // 24)
    for step in range(500):
        period = announced.period(1 + step % 100 * announced.period_ns)
        for ids in (period.nodes, period.locations):
            ids.add(np.arange(step * 200, step * 200 + 200, dtype=np.uint64))
        most = max(most, sum(map(len, announced.periods.values())))
        assert len(announced.periods) <= MOST_PERIODS
    assert PERIODS * limit < most <= PERIODS * 2 * limit + 400
    for step in range(3 * MOST_PERIODS):  # without IDs
        announced.period(announced.newest_unix_nano - step * announced.period_ns)
    assert len(announced.periods) == MOST_PERIODS


def test_nodes_are_announced_once() -> None:
    period, counts = Period(), []
    for stacks in (FIRST, CALLERS, MIXED, MIXED):
        announced = _unannounced(period, _batch(stacks))
        counts.append(len(announced.node_id) if announced else 0)
    assert counts == [7, 0, 3, 0]


def test_ids_from_the_sender_change_nothing() -> None:
    ours, senders = Period(), Period()
    for stacks in (FIRST, MIXED):
        raw = _batch(stacks)
        computed = _unannounced(ours, raw)
        given = _unannounced(senders, dataclasses.replace(raw, stack_id=identify.stack_ids(raw)))
        assert computed is not None
        assert given is not None
        for field in dataclasses.fields(given):
            assert np.array_equal(getattr(given, field.name), getattr(computed, field.name)), field.name


def test_a_stack_with_a_wrong_id_is_not_announced_and_keeps_no_other_from_it() -> None:
    right = identify.stack_ids(_batch(FIRST))
    wrong = right.copy()
    wrong[0], wrong[1] = right[1], 5
    period = Period()
    partly = _unannounced(period, dataclasses.replace(_batch(FIRST), stack_id=wrong))
    assert partly is not None
    assert set(right[2:].tolist()) <= set(partly.node_id.tolist())
    assert not set(right[:1].tolist()) & set(partly.node_id.tolist())
    assert _unannounced(period, dataclasses.replace(_batch(FIRST), stack_id=wrong)) is None
    rest = _unannounced(period, _batch(FIRST))
    assert rest is not None
    assert set(partly.node_id.tolist()) | set(rest.node_id.tolist()) >= set(right.tolist())
    assert not set(partly.node_id.tolist()) & set(rest.node_id.tolist())
    assert not set(partly.location_rows.tolist()) & set(rest.location_rows.tolist())


def test_a_batch_whose_stacks_all_have_wrong_ids_announces_nothing() -> None:
    period, raw = Period(), _batch(FIRST)
    assert _unannounced(period, dataclasses.replace(raw, stack_id=np.arange(1, 5, dtype=np.uint64))) is None
    announced = _unannounced(period, raw)
    assert announced is not None
    assert len(announced.node_id) == 7


def _unannounced(period: Period, raw: RawColumns) -> Announcement | None:
    return unannounced(period, raw, identify.stack_ids(raw))


def _batch(stacks: list[list[int]]) -> RawColumns:
    """A batch with these stacks: rows of locations, leaf first."""
    raw = decode_raw(window(1_770_000_000 * 10**9, 1).raw)
    frames = np.array([frame for stack in stacks for frame in stack], np.uint32)
    depth = np.array([len(stack) for stack in stacks])
    return dataclasses.replace(raw, stack_depth=depth, stack_frames=frames, stack_id=np.zeros(len(depth), np.uint64))
