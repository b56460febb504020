"""Damaged messages of every topic: only BadMessage comes out, and what is accepted becomes rows."""

import contextlib
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from icestream.columns import packed
from icestream.messages.activity import decode_activity
from icestream.messages.checks import BadMessage
from icestream.messages.message_id import MessageId
from icestream.messages.raw import decode_raw
from icestream.messages.samples import decode_samples
from icestream.messages.stacks import decode_stacks
from icestream.messages.symbols import decode_symbol_file, decode_symbol_request
from icestream.topics import ACTIVITY, MAX_MESSAGE_BYTES, RAW, SAMPLES, STACKS, SYMBOLS
from icestream.v1.activity_pb2 import ActivityBatch
from icestream.v1.raw_pb2 import RawBatch
from icestream.v1.samples_pb2 import SampleBatch
from icestream.v1.stacks_pb2 import StackBatch
from icestream.v1.symbols_pb2 import SymbolFile, SymbolRequest
from sinks.tables.decode import decode
from streams.partition.process import Processor
from tests.data.messages import batch_id, raw_batch, sample_batch, source
from tests.fuzz.messages import Mutants

pytestmark = pytest.mark.slow

MUTANTS = 200
"""How many each topic gets; `make fuzz` sends 200,000 through all parts."""
DECODERS: dict[Callable[[bytes], object], type[Message]] = {
    decode_raw: RawBatch,
    decode_activity: ActivityBatch,
    decode_samples: SampleBatch,
    decode_stacks: StackBatch,
    decode_symbol_file: SymbolFile,
    decode_symbol_request: SymbolRequest,
}
TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE)


def test_mutated_messages_are_bad_ones_or_become_rows() -> None:
    mutants, processor = Mutants(7), Processor()
    for number in range(MUTANTS):
        for topic in (RAW, ACTIVITY, SAMPLES, STACKS):
            message_id = MessageId("C", topic, 0, number)
            with contextlib.suppress(BadMessage):
                if topic == RAW:
                    outputs = processor.raw(mutants.next(topic, number), message_id)
                    for data in outputs.samples:
                        decode(data, MessageId("C", SAMPLES, 0, number))
                    for data in outputs.stacks:
                        decode(data, MessageId("C", STACKS, 0, number))
                    continue
                data = mutants.next(topic, number)
                decode(data, message_id)
                if topic == ACTIVITY:
                    processor.activity(data, message_id)
        with contextlib.suppress(BadMessage):
            decode_symbol_file(mutants.next(SYMBOLS, number))


def field(number: int, value: bytes) -> bytes:
    return packed.varint(number << 3 | 2) + packed.varint(len(value)) + value


def absurd(kind: type[Message]) -> Iterator[tuple[str, bytes]]:
    """Messages whose lengths or counts are absurd, each after what is absurd in it."""
    fields = kind.DESCRIPTOR.fields
    unknown = max(of.number for of in fields) + 1
    for number in [*(of.number for of in fields), unknown]:
        for size in (65, 2**31, 2**64 - 1):
            yield (
                f"length of {size} in field {number}",
                packed.varint(number << 3 | 2) + packed.varint(size) + b"\0" * 64,
            )
        yield f"endless varint in field {number}", packed.varint(number << 3) + b"\xff" * 100
    # Many fields with other numbers than that of a text or of a repeated field are many unknown fields.
    for number in [*(of.number for of in fields if of.is_repeated or of.type in TEXTS), unknown]:
        empty = field(number, b"")
        yield f"field {number} as often as it fits", empty * (MAX_MESSAGE_BYTES // len(empty))
        label = field(number, field(2, field(1, b"a") + field(2, b"b")))
        yield f"labels in field {number} as often as they fit", label * (MAX_MESSAGE_BYTES // len(label))
    nested = b""
    for _ in range(300):
        nested = field(8, nested)
    yield "nested", nested


@pytest.mark.parametrize("decoder", DECODERS)
def test_absurd_lengths_and_counts_take_little_memory(decoder: Callable[[bytes], object]) -> None:
    for what, data in absurd(DECODERS[decoder]):
        assert len(data) <= MAX_MESSAGE_BYTES, what
        tracemalloc.start()
        try:
            with contextlib.suppress(BadMessage):
                decoder(data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 100_000_000, f"{what} took {peak} bytes"


def test_more_mappings_or_series_than_a_host_has_are_a_bad_message() -> None:
    raw, samples = raw_batch(batch_id(), 5, {}), sample_batch(source(batch_id()), 5, {})
    for name, good, number, decoder in [
        ("mappings", raw, RawBatch.MAPPINGS_FIELD_NUMBER, decode_raw),
        ("mappings", b"", StackBatch.MAPPINGS_FIELD_NUMBER, decode_stacks),
        ("series", raw, RawBatch.SERIES_FIELD_NUMBER, decode_raw),
        ("series", samples, SampleBatch.SERIES_FIELD_NUMBER, decode_samples),
    ]:
        decoder(good + field(number, b"") * 40_000)
        with pytest.raises(BadMessage, match=f"{name}: expected 0 to 50000, got"):
            decoder(good + field(number, b"") * 300_000)
