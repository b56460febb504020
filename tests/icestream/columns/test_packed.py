"""Columns in messages."""

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from icestream.columns.packed import column, parse, serialize
from icestream.v1.raw_pb2 import RawBatch
from icestream.v1.samples_pb2 import SampleBatch


@given(
    st.lists(st.integers(0, 2**32 - 1)),
    st.lists(st.integers(0, 2**64 - 1)),
    st.lists(st.integers(-(2**63), 2**63 - 1)),
    st.lists(st.integers(-(2**31), 2**31 - 1)),
)
def test_what_is_written_is_what_protobuf_and_we_read(
    pids: list[int], stacks: list[int], values: list[int], counts: list[int]
) -> None:
    columns = {
        "sample_pid": np.array(pids, np.uint32),
        "sample_stack_id": np.array(stacks, np.uint64),
        "sample_value": np.array(values, np.int64),
        "sample_count": np.array(counts, np.int32),
    }
    message = SampleBatch.FromString(serialize(SampleBatch(host_id="a host"), columns))
    assert message.host_id == "a host"
    assert [list(message.sample_pid), list(message.sample_stack_id)] == [pids, stacks]
    assert [list(message.sample_value), list(message.sample_count)] == [values, counts]
    for name, values_ in columns.items():
        for read in (column(message, name), column(parse(SampleBatch, message.SerializeToString()), name)):
            assert read.dtype == values_.dtype
            assert np.array_equal(read, values_)


def test_values_of_another_type_are_converted_when_they_fit() -> None:
    message = RawBatch.FromString(serialize(RawBatch(), {"sample_pid": np.array([1.0, 2.0]), "stack_depth": [3]}))  # type: ignore[dict-item]
    assert list(message.sample_pid) == [1, 2]
    assert list(message.stack_depth) == [3]


@pytest.mark.parametrize("values", [[-1], [2**32], [1.5]])
def test_values_that_do_not_fit_are_an_error(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"RawBatch.sample_pid: values do not fit uint32"):
        serialize(RawBatch(), {"sample_pid": np.array(values)})


@pytest.mark.parametrize("name", ["strings", "host_id", "no_such_field", "start_unix_nano"])
def test_what_is_no_column_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match=f"RawBatch.{name} is not a repeated fixed-width field"):
        serialize(RawBatch(), {name: np.array([1])})
    with pytest.raises(ValueError, match=f"RawBatch.{name} is not a repeated fixed-width field"):
        column(RawBatch(), name)


def test_a_column_of_an_array_with_strides_is_written_in_order() -> None:
    message = RawBatch.FromString(serialize(RawBatch(), {"sample_tid": np.arange(10, dtype=np.uint32)[::2]}))
    assert list(message.sample_tid) == [0, 2, 4, 6, 8]


def test_a_column_may_come_in_pieces_and_unpacked_and_beside_fields_of_a_newer_version() -> None:
    first, second = (serialize(RawBatch(), {"sample_pid": np.array(values)}) for values in ([1, 2], [3]))
    tag = RawBatch.DESCRIPTOR.fields_by_name["sample_pid"].number
    alone = bytes([tag << 3 | 5]) if tag < 16 else bytes([(tag << 3 | 5) & 0x7F | 0x80, (tag << 3 | 5) >> 7])
    unpacked = alone + (4).to_bytes(4, "little")
    unknown = bytes([0xF8, 0xFF, 0x03, 7])  # the number 7 in a field that no version has
    for data, pids in (
        (first + second, [1, 2, 3]),
        (first + unpacked, [1, 2, 4]),
        (first + unknown + second, [1, 2, 3]),
        (b"", []),
    ):
        assert RawBatch.FromString(data).sample_pid == pids
        assert column(parse(RawBatch, data), "sample_pid").tolist() == pids


def test_a_column_that_is_cut_off_is_an_error_as_in_the_protobuf_package() -> None:
    data = serialize(RawBatch(), {"sample_pid": np.array([1, 2])})
    cut = data[:-9] + bytes([3]) + bytes(3)  # the length of the column is 3 bytes instead of 8
    for parser in (RawBatch.FromString, lambda wrong: parse(RawBatch, wrong)):
        with pytest.raises(DecodeError):
            parser(cut)
