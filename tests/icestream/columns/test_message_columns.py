"""Many small messages as columns."""

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from icestream.columns import message_columns
from icestream.columns.message_columns import Texts, join, of_parsed, read
from icestream.v1.activity_pb2 import Span

_FIXED64 = st.integers(0, 2**64 - 1)
_SPANS = st.lists(
    st.builds(
        Span,
        trace_id=st.binary(max_size=16) | st.just(bytes(16)),
        span_id=st.binary(max_size=300),
        name=st.text(),
        service=st.sampled_from(["", "cart", "x" * 200, "ü" * 9000]),
        start_unix_nano=_FIXED64,
        operation=st.text(),
        status=st.integers(0, 2**32 - 1),
    ),
    max_size=20,
)
_UNUSUAL = {
    "fields in another order": Span(name="b").SerializeToString() + Span(span_id=b"a").SerializeToString(),
    "a field that comes twice": Span(status=1).SerializeToString() + Span(status=2).SerializeToString(),
    "an unknown field": Span(name="a").SerializeToString() + b"\x78\x01",
    "a number of another type": b"\x30\x07",
    "a number with needless bytes": b"\x48\x81\x80\x80\x80\x80\x00",
}
_BROKEN = {
    "no UTF-8": b"\x22\x01\xff",
    "half a character": b"\x22\x01\xc3",
    "a text that is cut off": b"\x22\x05a",
    "a text that is far too long": b"\x22\xff\xff\xff\xff\x07a",
    "a length without an end": b"\x22\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    "a number that is cut off": b"\x31\x01\x02",
}


@given(_SPANS)
def test_columns_are_what_protobuf_reads(spans: list[Span]) -> None:
    messages = [span.SerializeToString() for span in spans]
    at_once = message_columns._read_at_once(Span, messages)
    assert at_once is not None
    for columns in (at_once, of_parsed(Span, spans)):
        for name, numbers in columns.numbers.items():
            assert numbers.tolist() == [getattr(span, name) for span in spans]
        assert columns.texts["trace_id"].data.tobytes() == b"".join(span.trace_id for span in spans)
        assert columns.texts["span_id"].lengths.tolist() == [len(span.span_id) for span in spans]
        for name in ("name", "service", "operation"):
            assert columns.texts[name].texts() == [getattr(span, name) for span in spans]


@pytest.mark.parametrize("message", _UNUSUAL.values(), ids=_UNUSUAL)
def test_what_is_legal_but_unusual_is_read_as_protobuf_reads_it(message: bytes) -> None:
    span = Span.FromString(message)
    columns = read(Span, [Span(name="x").SerializeToString(), message])
    assert columns.texts["name"].texts() == ["x", span.name]
    assert columns.texts["span_id"].texts() == ["", span.span_id.decode()]
    assert columns.numbers["status"].tolist() == [0, span.status]
    assert columns.numbers["start_unix_nano"].tolist() == [0, span.start_unix_nano]


@pytest.mark.parametrize("message", _BROKEN.values(), ids=_BROKEN)
def test_what_protobuf_cannot_read_is_an_error(message: bytes) -> None:
    for after in (b"", b"\x22\x02\xa9b"):  # which would complete a character
        with pytest.raises(DecodeError):
            read(Span, [Span(name="x").SerializeToString(), message, after][: 2 + bool(after)])


def test_texts_are_joined_and_cut() -> None:
    texts = message_columns._of_values([b"a", b"", "ü".encode(), b"bc"])
    assert join([texts.rows(1, 3), texts.rows(3, 4), texts.rows(0, 0)]).texts() == ["", "ü", "bc"]


def test_short_values_are_padded_with_zeros() -> None:
    texts = Texts(np.frombuffer(b"xabcd", np.uint8), np.array([1, 3, 3, 5], np.int32))
    assert texts.padded(2).tolist() == [[97, 98], [0, 0], [99, 100]]
    assert texts.rows(2, 3).padded(2).tolist() == [[99, 100]]
