"""Profiles are read all at once as they are one by one, however their sender writes them."""

import random

import numpy as np
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from gateway.encode import encode
from gateway.errors import Refused
from gateway.readers import stack_table
from gateway.readers.location_table import LocationTable, SentLine, build_id, file_address, sent_line
from gateway.readers.number_messages import MAX_FIELDS, PORTION_BYTES
from gateway.readers.pprof import Source, read_pprof
from gateway.readers.pprof_tables import MAX_ROWS, ById
from gateway.sent_profile import SentProfile
from icestream.columns.packed import varint
from icestream.messages.checks import MAX_ENTRIES, MAX_LINE, MAX_LINES, MAX_NAME
from icestream.messages.plausible import ANY_TIME
from icestream.messages.raw import decode_raw
from icestream.messages.raw_encoder import LocationName, Stacks
from icestream.pprof.profile_pb2 import Function, Location, Profile
from icestream.topics import DEFAULT_PROFILE_TYPE
from tests.gateway.profiles import maker, profiles, simple

SOURCE = Source((("service", "shop"),))
MEMORY = (("objects", "count"), ("space", "bytes"))
Frame = tuple[tuple[int, str, str], int, LocationName, tuple[SentLine, ...]]


def frames(stacks: Stacks) -> list[Frame]:
    """What each location says, without rows."""
    lines = stacks.lines
    ends = np.zeros(len(stacks.mapping), np.int64) if lines is None else np.cumsum(lines.count)
    counts = ends if lines is None else lines.count
    rows = [] if lines is None else [
        SentLine(lines.texts[function], lines.texts[file], number, start)
        for function, file, number, start in zip(
            lines.function.tolist(), lines.file.tolist(), lines.number.tolist(), lines.start_line.tolist(), strict=True
        )
    ]  # fmt: skip
    return [
        (stacks.mappings[mapping], address, stacks.names[name], tuple(rows[end - count : end]))
        for mapping, address, name, end, count in zip(
            stacks.mapping.tolist(), stacks.address.tolist(), stacks.name.tolist(), ends.tolist(), counts.tolist(),
            strict=True,
        )
    ]  # fmt: skip


def expected(profile: Profile) -> list[list[Frame]]:
    """The frames of each sample, leaf first, read one by one."""
    table, strings = LocationTable(), profile.string_table
    functions = {function.id: function for function in profile.function}
    mappings = {mapping.id: mapping for mapping in profile.mapping}
    rows = {}
    for location in profile.location:
        mapping = mappings[location.mapping_id] if location.mapping_id else None
        lines = [
            sent_line(strings[f.name] or strings[f.system_name], strings[f.filename], line.line, f.start_line)
            for line in location.line
            for f in [functions[line.function_id]]
        ]
        file, identity, address = "", "", location.address
        if mapping:
            file, identity = strings[mapping.filename], build_id(strings[mapping.build_id])
            address = file_address(address, mapping.memory_start, mapping.file_offset)
        rows[location.id] = table.location(identity, file, address, lines)
    locations = table.all()
    found = frames(
        Stacks(locations.mapping, locations.address, locations.name, np.empty(0), np.empty(0), locations.mappings,
               locations.names, lines=locations.lines)
    )  # fmt: skip
    return [[found[rows[location]] for location in sample.location_id] for sample in profile.sample]


def read(data: bytes) -> tuple[SentProfile, list[list[Frame]]]:
    """The profile, and the frames of each sample."""
    sent = read_pprof(data, SOURCE, 1000)
    stacks = sent.window.stacks
    found = frames(stacks)
    ends = np.cumsum(stacks.depth)
    of_stack = [
        [found[row] for row in stacks.frames[end - depth : end].tolist()]
        for end, depth in zip(ends.tolist(), stacks.depth.tolist(), strict=True)
    ]
    return sent, [of_stack[row] for row in sent.window.stack.tolist()]


def other_bytes(message: Message, chosen: random.Random) -> bytes:
    """The message as other writers may write it: numbers not packed, zeros written, fields that pprof does not have."""
    written = b""
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        values = list(value) if field.is_repeated else [value]
        is_number = field.type not in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_STRING)
        if field.is_repeated and is_number and values and chosen.random() < 0.3:
            packed = b"".join(varint(one % 2**64) for one in values)
            written += varint(field.number << 3 | 2) + varint(len(packed)) + packed
            continue
        for one in values:
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                data = other_bytes(one, chosen)
            elif field.type == FieldDescriptor.TYPE_STRING:
                data = one.encode()
            else:
                written += varint(field.number << 3) + varint(int(one) % 2**64)
                continue
            written += varint(field.number << 3 | 2) + varint(len(data)) + data
    unknown = {0: b"", 1: varint(1000 << 3) + varint(7), 2: varint(1001 << 3 | 2) + varint(3) + b"\xff\xfe\x80",
               3: varint(1002 << 3 | 1) + bytes(8), 4: varint(1003 << 3 | 2) + varint(2) + b"ab"}  # fmt: skip
    return written + unknown[chosen.choice((0, 0, 0, 1, 2, 3, 4))]


@given(profiles(), st.randoms(use_true_random=False))
def test_profiles_are_read_as_they_are_one_by_one(profile: Profile, chosen: random.Random) -> None:
    for row, function in enumerate(profile.function):
        function.start_line = chosen.choice((0, -1, MAX_LINE + 1, function.start_line))
        if chosen.random() < 0.3:
            function.name, function.system_name = 0, chosen.choice((0, profile.function[row - 1].filename))
    profile.location.add().CopyFrom(profile.location[0])
    profile.location[-1].id = 2**64 - 1
    profile.sample.append(profile.sample[0])
    profile.sample[-1].location_id.append(2**64 - 1)
    for data in (profile.SerializeToString(), other_bytes(profile, chosen)):
        sent, found = read(data)
        assert found == expected(profile)
        given = np.array([sample.value for sample in profile.sample])
        columns = [column for values in sent.values for column in (values.value, values.count) if column is not None]
        assert sorted(map(sum, columns)) == sorted(given.sum(axis=0).tolist())
        for message in encode(sent, ANY_TIME).messages:
            decode_raw(message)


def test_lines_beyond_the_limit_are_left_out_and_equal_locations_are_one() -> None:
    profile = simple({("main", "work"): (1, 1)})
    for location in profile.location:
        location.line[0].function_id = 1
        for line in range(2 * MAX_FIELDS):
            location.line.add(function_id=1, line=line)
    sent, found = read(profile.SerializeToString())
    assert found == expected(profile)
    assert len(sent.window.stacks.mapping) == 1
    assert len(found[0][0][3]) == MAX_LINES


@pytest.mark.parametrize("ids", [[1], [1] * (MAX_FIELDS + 50)])
def test_numbers_that_are_not_packed_are_read_however_many(ids: list[int]) -> None:
    profile = simple({("main",): (5, 50)})
    sample = b"".join(varint(1 << 3) + varint(one) for one in ids) + bytes([2 << 3, 5, 2 << 3, 50])
    del profile.sample[:]
    data = profile.SerializeToString() + varint(2 << 3 | 2) + varint(len(sample)) + sample
    profile.sample.add(location_id=ids, value=[5, 50])
    _, found = read(data)
    assert found == expected(profile)


@pytest.mark.parametrize(
    ("number", "data"),
    [
        (2, b"\x0a\x05\x01"),  # a packed list that is longer than its sample
        (2, b"\x08\x80"),  # a number that is cut off
        (3, b"\x08\x80"),
        (3, b"\x28\x7f"),  # a file that is not in the table of strings
        (3, b"\x30" + b"\xff" * 9 + b"\x01"),  # a build ID before the first string
        (4, b"\x22\x7f\x08\x01"),
        (4, b"\x22\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        (5, b"\x08" + b"\x80" * 11 + b"\x01"),
        (5, b"\x08"),
        (5, b"\x00\x01"),
        (2, (varint(3 << 3 | 2) + b"\0") * (MAX_FIELDS + 1)),  # labels
    ],
)
def test_messages_that_are_broken_or_absurd_are_refused(number: int, data: bytes) -> None:
    profile = simple({("main",): (5, 50)}).SerializeToString() + varint(number << 3 | 2) + varint(len(data)) + data
    with pytest.raises(Refused):
        read_pprof(profile, SOURCE, 10)


def test_large_profiles_are_read_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = simple({(f"main{number}", f"work{number % 7}", "leaf"): (number, 5) for number in range(100)})
    for location in profile.location[::3]:
        location.line.add(function_id=2, line=9)
    for size, count in ((60, 50), (100, 100_000), (10**6, 3)):
        monkeypatch.setattr("gateway.readers.number_messages.PORTION_BYTES", size)
        monkeypatch.setattr("gateway.readers.number_messages.PORTION_MESSAGES", count)
        sent, found = read(profile.SerializeToString())
        assert found == expected(profile)
        assert sent.values[0].count is not None
        assert sent.values[0].count.tolist() == list(range(100))


def test_a_sample_with_absurdly_many_frames_is_refused() -> None:
    profile = simple({("main",): (5, 50)})
    profile.sample.add(location_id=[1] * PORTION_BYTES, value=[1, 1])
    with pytest.raises(Refused):
        read_pprof(profile.SerializeToString(), SOURCE, 10)


@pytest.mark.parametrize(("number", "most"), [(3, MAX_ENTRIES), (4, MAX_ROWS), (5, MAX_ROWS)])
def test_absurdly_many_mappings_functions_and_locations_are_refused(number: int, most: int) -> None:
    empty = bytes([number << 3 | 2, 0])
    with pytest.raises(Refused):
        read_pprof(simple({("main",): (5, 50)}).SerializeToString() + empty * (most + 1), SOURCE, 10)


def test_of_functions_with_one_id_the_last_one_counts() -> None:
    profile = simple({("main",): (5, 50)})
    profile.function.add().CopyFrom(profile.function[0])
    profile.function[1].name, profile.function[1].start_line = profile.function[0].filename, 4
    _, found = read(profile.SerializeToString())
    assert found == expected(profile)
    assert found[0][0][3] == (SentLine("app.py", "app.py", 7, 4),)


def test_a_profile_without_samples_and_tables_is_empty() -> None:
    profile = simple({})
    sent, found = read(profile.SerializeToString())
    assert found == []
    assert encode(sent, ANY_TIME).messages == []


@pytest.mark.parametrize(
    ("types", "profile_types"),
    [
        ([("itimer", "ns"), ("cpu", "nanoseconds")], ["itimer:itimer:ns:wall:nanoseconds", DEFAULT_PROFILE_TYPE]),
        ([("cpu", "nanoseconds"), ("cpu", "ns")], [DEFAULT_PROFILE_TYPE, "process_cpu:cpu:ns:wall:nanoseconds"]),
        ([("wall", "ns"), ("itimer", "ns")], ["wall:wall:nanoseconds:wall:nanoseconds", DEFAULT_PROFILE_TYPE]),
    ],
)
def test_types_with_one_name_keep_the_names_that_were_sent_and_cpu_time_is_that_by_any_timer(
    types: list[tuple[str, str]], profile_types: list[str]
) -> None:
    sent, _ = read(simple({("main",): (5, 6)}, types, ("wall", "ns")).SerializeToString())
    found = [(one.profile_type, one.value.tolist()) for one in sent.values]
    assert found == [(kind, [value]) for kind, value in zip(profile_types, (5, 6), strict=True)]


@pytest.mark.parametrize(
    "types",
    [
        [("cpu", "ns"), ("cpu", "ns")],
        [("a:b", "count"), ("a_b", "count")],
        [("samples", "count"), ("samples", "count")],
    ],
)
def test_a_profile_with_one_type_twice_is_refused(types: list[tuple[str, str]]) -> None:
    with pytest.raises(Refused, match="each type once"):
        read(simple({("main",): (5, 6)}, types).SerializeToString())


def test_empty_messages_are_messages() -> None:
    profile = simple({("main",): (5, 50)})
    profile.function.append(Function())
    profile.location.append(Location())
    profile.sample.add(location_id=[0], value=[1, 10])
    _, found = read(profile.SerializeToString())
    assert found == expected(profile)


@given(st.integers(0, 2**64 - 40), st.lists(st.integers(0, 30), min_size=1, max_size=20), st.booleans())
def test_ids_are_found_whether_they_are_consecutive_or_not(first: int, numbers: list[int], consecutive: bool) -> None:
    ids = [first + number for number in (sorted(range(len(numbers)), reverse=True) if consecutive else numbers)]
    by_id = ById(np.array(ids, np.uint64))
    rows = {one: row for row, one in enumerate(ids)}  # the last one counts
    assert by_id.rows(np.array(ids, np.uint64)).tolist() == [rows[one] for one in ids]
    for other in (first - 1, first + 35, 0, 2**64 - 1):
        if other not in rows and other >= 0:
            with pytest.raises(KeyError, match=str(other)):
                by_id.rows(np.array([ids[0], other], np.uint64))


@pytest.mark.parametrize("lines", [MAX_LINES + 8, 2 * MAX_FIELDS])
def test_names_and_lines_beyond_the_limits_are_counted(lines: int) -> None:
    profile = simple({("main", "f" * (MAX_NAME + 1)): (1, 1)})
    for line in range(1, lines):
        profile.location[0].line.add(function_id=1, line=line)
    sent, _ = read(profile.SerializeToString())
    assert sent.dropped == {"names": 1, "lines": lines - MAX_LINES}


def test_samples_of_different_requests_share_the_labels_that_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile of 30,000 spans lost labels, because the labels of each span were read anew."""
    monkeypatch.setattr(stack_table, "_MOST_LABELS_READ", 10)
    made = maker([("cpu", "nanoseconds")], ("cpu", "nanoseconds"))
    made.profile.function.add(id=1, name=made.string("work"))
    made.profile.location.add(id=1).line.add(function_id=1, line=1)
    for number in range(1, 100):
        sample = made.profile.sample.add(location_id=[1], value=[1])
        for key, text in (("span_id", f"{number:016x}"), ("trace_id", f"{number:032x}"), ("endpoint", "/pay")):
            sample.label.add(key=made.string(key), str=made.string(text))
    profile = read_pprof(made.done().SerializeToString(), Source((("service", "shop"),)), 10)
    assert profile.window.labels == [(("endpoint", "/pay"), ("service", "shop"))]
    assert not profile.dropped


def test_a_text_that_is_no_utf_8_costs_nothing_but_itself() -> None:
    """Go writes labels as the program has them: a path, say, as it came in a request."""
    data = simple({("main", "work"): (3, 30)}, labels={"path": "/a_b", "tier": "λ"}).SerializeToString()
    sent = read_pprof(data.replace(b"/a_b", b"/a\xffb"), SOURCE, 10)
    assert sent.window.labels == [(("path", "/a\ufffdb"), ("service", "shop"), ("tier", "λ"))]
    assert sent.values[0].value.tolist() == [30]
    assert encode(sent, ANY_TIME).samples == 1


def test_of_a_difference_what_is_in_use_is_left_out() -> None:
    """Go's /debug/pprof/allocs?seconds=15, after something was freed meanwhile."""
    types = [(f"{kind}_{what}", unit) for kind in ("alloc", "inuse") for what, unit in MEMORY]
    allocated = {("main", "work"): (3, 4096, 1, 64), ("main",): (0, 0, -2, -128)}
    sent = read_pprof(simple(allocated, types, ("space", "bytes")).SerializeToString(), SOURCE, 10)
    assert [one.profile_type.split(":")[1] for one in sent.values] == ["alloc_objects", "alloc_space"]
    assert sent.dropped == {"differences": 2}
    assert encode(sent, ANY_TIME).samples == 2
    freed = simple({("main",): (-2, -128)}, types[2:], ("space", "bytes"))
    with pytest.raises(Refused, match="negative"):
        encode(read_pprof(freed.SerializeToString(), SOURCE, 10), ANY_TIME)


@pytest.mark.parametrize(
    ("period", "counts"), [(10_000_000, [176, 1, 1]), (0, None), (1, [1_760_000_000, 10_000_000, 1])]
)
def test_cpu_time_without_counts_is_as_many_observations_as_there_are_periods(
    period: int, counts: list[int] | None
) -> None:
    """Pyroscope's SDKs for Python and Rust send each stack once, with all of its time."""
    stacks = {("main", "work"): (1_760_000_000,), ("main",): (10_000_000,), ("short",): (1,)}
    profile = simple(stacks, [("cpu", "nanoseconds")])
    profile.period = period
    (sent,) = read_pprof(profile.SerializeToString(), SOURCE, 10).values
    assert (None if sent.count is None else sent.count.tolist()) == counts
    wall = read_pprof(simple(stacks, [("wall", "nanoseconds")]).SerializeToString(), SOURCE, 10)
    assert wall.values[0].count is None


@pytest.mark.parametrize("count", [2**62, -(2**63)])
def test_counts_that_overflow_as_cpu_time_are_refused(count: int) -> None:
    profile = simple({("main",): (1,), ("work",): (count,)}, [("samples", "count")])
    with pytest.raises(Refused, match="multiplied with the period"):
        read(profile.SerializeToString())
