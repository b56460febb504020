"""Makes spans into activity batches without intervals."""

import time
from collections.abc import Iterator, Sequence

import xxhash

from gateway.encode import Encoded
from gateway.readers.otlp_spans import SentSpans
from icestream.labels.operations import MANY_OPERATIONS, OperationNames
from icestream.labels.request_labels import RequestLabels
from icestream.messages.activity import decode_activity
from icestream.messages.plausible import Times
from icestream.messages.raw import GATEWAY
from icestream.topics import MAX_MESSAGE_BYTES
from icestream.v1.activity_pb2 import ActivityBatch, Span
from icestream.v1.common_pb2 import BatchId

_HEADER_BYTES = 2000
_FIELD_BYTES = 8  # what a span takes in the message beside its own bytes
_LABELS_BYTES = 3  # what labels take beside theirs


def encode_spans(sent: SentSpans, times: Times, names: OperationNames, sets: RequestLabels) -> Encoded:
    """Encodes spans as messages of icestream.activity. Raises BadMessage where one would not pass its readers' checks.

    The ID of a batch does not depend on what `names` and `sets` replace: that depends on what came before.
    """
    labels = sets.choose(sent.labels)
    parts = _split(sent.spans, MAX_MESSAGE_BYTES - _HEADER_BYTES, len(labels.encode()) + _LABELS_BYTES)
    messages = [_message(sent.host_id, spans, names, labels) for spans in parts]
    for message in messages:
        decode_activity(message, times)
    return Encoded(sent.host_id.encode(), messages, len(sent.spans))


def _split(spans: Sequence[Span], limit: int, labels_bytes: int) -> Iterator[Sequence[Span]]:
    first = size = 0
    for row, span in enumerate(spans):
        more = span.ByteSize() + _FIELD_BYTES + labels_bytes + (len(MANY_OPERATIONS) if span.operation else 0)
        if size + more > limit:
            yield spans[first:row]
            first, size = row, 0
        size += more
    yield spans[first:]


def _message(host_id: str, spans: Sequence[Span], names: OperationNames, labels: str) -> bytes:
    start = min(span.start_unix_nano for span in spans)
    batch = ActivityBatch(
        host_id=host_id,
        start_unix_nano=start,
        complete_unix_nano=max(span.end_unix_nano for span in spans),
        strings=[""],
        spans=spans,
    )
    # Named by its content: spans that come again are the same batch, and are stored once.
    digest = xxhash.xxh3_128_hexdigest(batch.SerializeToString(deterministic=True))
    batch.id.CopyFrom(BatchId(collector=f"{GATEWAY}{digest}", started_unix_nano=start, sequence=1, parts=1))
    batch.published_unix_nano = time.time_ns()
    for span in batch.spans:
        span.operation = names.limited(span.service, span.operation)
        span.labels = labels
    return batch.SerializeToString()
