import dataclasses

import numpy as np

from icestream.messages.raw import RawColumns, decode_raw
from streams import identify
from streams.deduplicate import DAYS, Announced, Day, unannounced
from streams.identify import StackIds
from tests.data.windows import window

DAY_NS = 86_400 * 10**9
FIRST = [[3], [5, 4], [7, 6, 5, 4], [9, 8]]
CALLERS = [[6, 5, 4], [8], [5, 4]]
"""Their last nodes are nodes of the first ones."""
MIXED = [[6, 5, 4], [11, 10], [3], [12, 5, 4], [8], []]


def test_only_a_few_days_are_remembered() -> None:
    announced = Announced()
    first = announced.day(0)
    assert announced.day(DAY_NS - 1) is first
    for day in range(1, DAYS + 1):
        announced.day(day * DAY_NS)
    assert len(announced.days) == DAYS
    assert announced.day(0) is not first


def test_nodes_that_were_computed_for_ids_are_announced_as_if_they_were_computed_anew() -> None:
    known = identify.known_stacks()
    shared, anew = Day(), Day()
    counts = []
    for stacks in (FIRST, CALLERS, MIXED, MIXED):
        raw = _batch(stacks)
        location_id = identify.location_ids(raw)
        found = identify.stack_ids(raw, location_id, known)
        with_nodes = unannounced(shared, raw, location_id, found)
        without = unannounced(anew, raw, location_id, StackIds(found.stack_id, None))
        if with_nodes is None or without is None:
            assert with_nodes is without
            counts.append(0)
            continue
        for field in dataclasses.fields(without):
            assert np.array_equal(getattr(with_nodes, field.name), getattr(without, field.name)), field.name
        counts.append(len(without.node_id))
    assert counts == [7, 0, 3, 0]


def test_stacks_that_a_worker_knows_are_announced_in_another_partition() -> None:
    known = identify.known_stacks()
    batches = [_batch(FIRST), _batch(FIRST + MIXED)]
    announced = []
    for raw in batches:
        location_id = identify.location_ids(raw)
        announced.append(unannounced(Day(), raw, location_id, identify.stack_ids(raw, location_id, known)))
    assert [len(one.node_id) for one in announced if one] == [7, 10]


def _batch(stacks: list[list[int]]) -> RawColumns:
    """A batch with these stacks: rows of locations, leaf first."""
    raw = decode_raw(window(1_770_000_000 * 10**9, 1).raw)
    frames = np.array([frame for stack in stacks for frame in stack], np.uint32)
    return dataclasses.replace(raw, stack_depth=np.array([len(stack) for stack in stacks]), stack_frames=frames)
