"""Announcements: what is too long is cut, what is too much is split."""

import numpy as np

from icestream.messages.checks import MAX_FILE, MAX_LINE, MAX_LINES, MAX_NAME, MAX_TEXT
from icestream.messages.stack_encoder import LocationColumns, LocationNames, NodeColumns, encode_stacks
from icestream.messages.stacks import decode_stacks
from icestream.symbols.line import Line
from icestream.topics import MAX_MESSAGE_BYTES
from icestream.v1.common_pb2 import BatchId, Mapping, Source

MAPPINGS = [Mapping(), Mapping(kind=Mapping.FILE, build_id="\N{SNOWMAN}" * MAX_TEXT, file="\N{SNOWMAN}" * MAX_FILE)]


def locations(*lines: list[Line]) -> LocationColumns:
    rows = np.arange(len(lines))
    return LocationColumns(
        rows + 1, rows, np.ones(len(lines), int), MAPPINGS, [LocationNames(7, tuple(some)) for some in lines]
    )


def test_long_names_many_lines_and_large_numbers_are_cut() -> None:
    line = Line("f" * 100_000, "g" * 100_000, 2**40, 2**40)
    [message] = encode_stacks(None, 0, 0, NodeColumns(), locations([line] * 100))
    columns = decode_stacks(message)
    assert columns.location_line_count.tolist() == [MAX_LINES]
    assert columns.strings == ["", "f" * MAX_NAME, "g" * MAX_NAME]
    assert set(columns.line_number.tolist()) == set(columns.line_start_line.tolist()) == {MAX_LINE}


def test_the_largest_locations_and_many_nodes_fit_into_messages_that_know_their_part() -> None:
    # Every line has names of its own, of four bytes a character.
    lines = [
        [
            Line(chr(0x10000 + i) * MAX_NAME, chr(0x10000 + 1000 * location + i) * MAX_NAME, i, 1)
            for i in range(MAX_LINES)
        ]
        for location in range(20)
    ]
    ids = np.arange(1, 100_001, dtype=np.uint64)
    source = Source(batch=BatchId(collector="c" * MAX_TEXT), cluster="C", offset=5)
    messages = encode_stacks(source, 3, 4, NodeColumns(ids, ids - np.uint64(1), ids), locations(*lines))
    assert max(map(len, messages)) <= MAX_MESSAGE_BYTES
    columns = [decode_stacks(message) for message in messages]
    assert [c.source.part for c in columns] == list(range(len(messages)))
    assert {(c.source.parts, c.source.offset) for c in columns} == {(len(messages), 5)}
    assert np.concatenate([c.node_id for c in columns]).tolist() == ids.tolist()
    assert np.concatenate([c.location_id for c in columns]).tolist() == list(range(1, 21))


def test_nothing_to_announce_is_no_message() -> None:
    assert encode_stacks(None, 0, 0, NodeColumns(), locations()) == []
