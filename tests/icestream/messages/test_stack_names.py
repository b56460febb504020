"""Names of stacks up to a number of bytes, and what is said of those that are not known."""

import pytest

from icestream.messages.stack_names import UNKNOWN, Frame, StackNames
from icestream.v1.common_pb2 import Mapping
from icestream.v1.stacks_pb2 import StackBatch
from tests.data import messages as builders
from tests.icestream.test_tail import learn


def announce(number: int) -> StackBatch:
    """A stack of its own: its leaf node 2 * number, the root before it, and their locations of the same IDs."""
    leaf, root = 2 * number, 2 * number - 1
    return StackBatch.FromString(
        builders.stack_batch(
            {
                "node_id": [root, leaf], "node_parent_id": [0, root], "node_location_id": [root, leaf],
                "location_id": [root, leaf], "location_version": [1, 1], "location_line_count": [1, 1],
                "line_function": [1, 2], "line_file": [0, 0], "line_number": [1, 1],
            },
            strings=["", f"main {number}", f"leaf {number}"], mappings=[Mapping(), Mapping(file="/bin/app")],
        )
    )  # fmt: skip


def test_names_that_were_neither_asked_for_nor_announced_for_longest_are_forgotten_first() -> None:
    limit_bytes = 1_000_000
    names, asked, again, untouched = StackNames(limit_bytes), 1, 2, 3
    for number in range(1, 5000):
        learn(names, announce(number))
        if number > asked:
            assert names.frames(2 * asked) == ["leaf 1", "main 1"]
        if number % 500 == 0:
            learn(names, announce(again))
    known = [number for number in range(1, 5000) if names.frames(2 * number)]
    assert known[:2] == [asked, again]
    assert known[2:] == list(range(known[2], 5000))
    assert limit_bytes / 2 < sum(map(sizes, known)) < limit_bytes
    assert names.leaf(2 * untouched) == f"{2 * untouched:016x}"
    learn(names, announce(untouched))
    assert names.frames(2 * untouched) == ["leaf 3", "main 3"]


def sizes(number: int) -> int:
    """About what the two nodes and locations of a stack take."""
    return 2 * (260 + 440)


@pytest.mark.parametrize("lacking", ["node_id", "location_id"])
def test_what_is_lacking_of_a_stack_stands_in_its_place(lacking: str) -> None:
    names, root = StackNames(), 2 * 7 - 1
    part = announce(7)
    getattr(part, lacking)[0] = 99
    learn(names, part)
    assert names.frames(2 * 7) == ["leaf 7", UNKNOWN]
    assert names.leaf(2 * 7) == "leaf 7"
    assert names.frames(root) == []
    learn(names, announce(7))
    assert names.frames(2 * 7) == ["leaf 7", "main 7"]


def test_an_announcement_of_nodes_whose_locations_are_known_is_learned() -> None:
    names = StackNames()
    learn(names, announce(7))
    learn(names, StackBatch(strings=[""], node_id=[100], node_parent_id=[14], node_location_id=[13]))
    assert names.stack(100) == [
        Frame("main 7", "/bin/app", ""), Frame("leaf 7", "/bin/app", ""), Frame("main 7", "/bin/app", "")
    ]  # fmt: skip
