"""Checks that several messages share, and the limits of what a message may hold."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from icestream.columns import packed
from icestream.labels.request_labels import is_label_set
from icestream.process.byte_cache import ByteCache
from icestream.times import MAX_UNIX_NANO
from icestream.topics import MAX_MESSAGE_BYTES
from icestream.v1.common_pb2 import BatchId, Mapping, Series

MAX_PARTS = 10_000
MAX_SEQUENCE = 2**32 - 1
"""At ten batches a second, 13 years of one run of a collector."""
MAX_OFFSET = 2**47 - 1
"""Offsets in Kafka: one of the lake sink's marks is an offset and 16 bits more."""
MAX_COUNT = 2**40 - 1
"""What one batch reports as lost: counts that can be added up."""
MAX_PERIOD = 2**53
"""The longest period of one observation, in the period unit of a profile type."""
MAX_OBSERVATIONS = 2**31 - 1
"""The most observations of a sample."""
MAX_LINE = 2**31 - 1
"""Line numbers, which Parquet (Delta) keeps as signed integers of 32 bits."""
MAX_NAME = 1024
"""Characters of a function's name, or of a file's path, in announcements; longer ones are cut."""
MAX_LINES = 32
"""Lines of a location in announcements. Where code is inlined deeper, the outermost lines are left out."""
MAX_VERSION = 2**31 - 1
"""Versions of names."""
MAX_ID = 256
"""UTF-8 bytes of the ID of a host, a collector or a cluster, and of a profile type."""
MAX_TEXT = 1024
"""Characters of a build ID, of a label's name or value, and of any other text that a row has for itself."""
MAX_FILE = 4 * MAX_TEXT
"""Characters of a mapping's path."""
MAX_ENTRIES = 50_000
"""Mappings, and series, of a message."""
MAX_LABELS = 256
MAX_LABELS_TEXT = 64_000
"""Characters of all labels of a series, so that a message always has room for a series."""
MAX_SUM = 2.0**56
"""A column's absolute values sum up to less: for CPU, to 2 years. So a hundred absurd messages overflow no sum."""
MAX_ROWS_TEXT = 16_000_000
"""UTF-8 bytes that a column of texts takes when every row has its own copy: 25,000 rows may name one long text."""

_MAX_UTF8 = 4
"""Bytes of a character."""
_KINDS = frozenset(Mapping.Kind.values())

MessageT = TypeVar("MessageT", bound=Message)
LABELS_BYTES = 64_000_000
"""Limit of the labels of series that are remembered: about 40,000 series of five labels."""
_LABEL_BYTES = 200

Labels = tuple[tuple[str, str], ...]
"""(name, value), sorted by name; no name twice, no empty value."""


class BadMessage(ValueError):
    """A message that cannot be processed or stored. `field` is the one that is wrong, as it is called in schemas/ (or
    the message's type); the text says what was expected and what came."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


def parse(kind: type[MessageT], data: bytes | None, unread: str = "") -> MessageT:
    """Returns a message that is not checked yet; `column` reads its columns, and `packed.messages` what is in `unread`.
    Raises BadMessage."""
    return _parse(kind, data, lambda data: packed.parse(kind, data, unread))


def parse_header(kind: type[MessageT], data: bytes | None) -> MessageT:
    """Returns a message that is not checked yet, without its repeated fields. Raises BadMessage."""
    return _parse(kind, data, lambda data: packed.parse_header(kind, data))


def _parse(kind: type[MessageT], data: bytes | None, read: Callable[[bytes], MessageT]) -> MessageT:
    name = kind.DESCRIPTOR.name
    data = data or b""
    if len(data) > MAX_MESSAGE_BYTES:
        raise BadMessage(name, f"expected at most {MAX_MESSAGE_BYTES} bytes, got {len(data)}")
    try:
        return read(data)
    except DecodeError as error:
        raise BadMessage(name, f"cannot be read: {error}") from None


def column(message: Message, name: str, rows: int, default: int | None = None) -> np.ndarray:
    """Returns a column with `rows` entries. A column that may be missing is filled with its default."""
    values = packed.column(message, name)
    if default is not None and not len(values):
        return np.full(rows, default, values.dtype) if default else np.zeros(rows, values.dtype)
    if len(values) != rows:
        raise BadMessage(name, f"expected {rows} entries, as the columns beside it have, got {len(values)}")
    return values


def columns(message: Message, *names: str) -> list[np.ndarray]:
    """Returns parallel columns."""
    first = packed.column(message, names[0])
    return [first, *(column(message, name, len(first)) for name in names[1:])]


def contexts(trace_ids: bytes, span_ids: bytes) -> np.ndarray:
    """Returns trace contexts as uint8 (c, 24): trace ID, span ID."""
    if len(trace_ids) % 16 or len(span_ids) % 8 or len(trace_ids) // 16 != len(span_ids) // 8:
        raise BadMessage(
            "context_trace_ids",
            f"expected 16 bytes for every 8 bytes of context_span_ids, got {len(trace_ids)} bytes and {len(span_ids)}",
        )
    return np.hstack(
        [np.frombuffer(trace_ids, np.uint8).reshape(-1, 16), np.frombuffer(span_ids, np.uint8).reshape(-1, 8)]
    )


def strings(values: Sequence[str]) -> list[str]:
    """Returns the strings of a message. A message that names nothing may have none; then every index is 0."""
    return list(encoded_strings(values))


def encoded_strings(values: Sequence[str]) -> Sequence[str]:
    """As `strings`, without decoding them all: a caller that uses few of them decodes those only."""
    texts = values if len(values) else [""]
    if texts[0]:
        raise BadMessage("strings", f'expected "" as the first, got {_cut(texts[0])}')
    return texts


def mappings(mappings: Sequence[Mapping]) -> list[Mapping]:
    """Returns the mappings of a message."""
    check_most("mappings", len(mappings), MAX_ENTRIES)
    for mapping in mappings:
        if mapping.kind not in _KINDS:
            raise BadMessage("mappings.kind", f"expected one of Mapping.Kind, got {mapping.kind}")
        check_text("mappings.build_id", mapping.build_id, least=0)
        check_text("mappings.file", mapping.file, least=0, most=MAX_FILE)
    return list(mappings)


def labels(series: Sequence[Series]) -> list[Labels]:
    """Returns the labels of each series of a message."""
    check_most("series", len(series), MAX_ENTRIES)
    return [_labels(one.SerializeToString()) for one in series]


def check_index(name: str, values: np.ndarray, limit: int) -> None:
    """Checks that all indices are below `limit`."""
    if len(values) and values.max() >= limit:
        raise BadMessage(name, f"expected indices below {limit}, got {values.max()}")


def check_most(name: str, value: int | np.integer, most: int, least: int = 0) -> None:
    """Checks that a number is not above `most`, and not below `least`."""
    if not least <= value <= most:
        raise BadMessage(name, f"expected {least} to {most}, got {value}")


def check_column(name: str, values: np.ndarray, most: int) -> None:
    """Checks that no value of a column of unsigned numbers is above `most`."""
    if len(values):
        check_most(name, int(values.max()), most)


def check_sum(name: str, values: np.ndarray) -> None:
    """Checks that the absolute values sum up to less than MAX_SUM."""
    total = np.abs(values.astype(float)).sum()
    if total >= MAX_SUM:
        raise BadMessage(name, f"expected a sum below {MAX_SUM:.3g}, got {total:.3g}")


def check_batch_id(name: str, batch_id: BatchId) -> None:
    check_id(f"{name}.collector", batch_id.collector)
    check_most(f"{name}.started_unix_nano", batch_id.started_unix_nano, MAX_UNIX_NANO)
    check_most(f"{name}.sequence", batch_id.sequence, MAX_SEQUENCE, least=1)
    check_part(name, batch_id.part, batch_id.parts)


def check_part(name: str, part: int, parts: int) -> None:
    check_most(f"{name}.parts", parts, MAX_PARTS, least=1)
    check_most(f"{name}.part", part, parts - 1)


def check_profile_type(text: str) -> None:
    check_id("profile_type", text)
    if text.count(":") != 4:
        raise BadMessage("profile_type", f"expected name:type:unit:period type:period unit, got {_cut(text)}")


def check_id(name: str, text: str) -> None:
    if not 0 < len(text.encode()) <= MAX_ID:
        raise BadMessage(name, f"expected 1 to {MAX_ID} bytes of UTF-8, got {_cut(text)}")


def check_clock_offset(offset_ns: int) -> None:
    """Checks that times minus the offset do not overflow."""
    if abs(offset_ns) >= MAX_UNIX_NANO:
        raise BadMessage("clock_offset_ns", f"expected less than 130 years, got {offset_ns} ns")


def check_text(name: str, text: str, least: int = 1, most: int = MAX_TEXT) -> None:
    if not least <= len(text) <= most:
        raise BadMessage(name, f"expected {least} to {most} characters, got {len(text)}: {_cut(text)}")


def check_rows_text(name: str, rows: np.ndarray, texts: Sequence[str]) -> None:
    """Checks the texts that rows (indices into `texts`) refer to: their lengths, and what all rows take together."""
    longest = max(map(len, texts), default=0)
    if longest <= MAX_TEXT and longest * _MAX_UTF8 * len(rows) <= MAX_ROWS_TEXT:
        return
    used = np.bincount(rows, minlength=len(texts))
    for row in np.flatnonzero(used).tolist():
        check_text(name, texts[row], least=0)
    size = sum(used[row] * len(texts[row].encode()) for row in np.flatnonzero(used).tolist())
    if size > MAX_ROWS_TEXT:
        raise BadMessage(name, f"expected at most {MAX_ROWS_TEXT} bytes of text in all rows, got {size}")


def check_label_set(name: str, text: str) -> None:
    if not is_label_set(text):
        expected = 'labels as {"name":"value",...}, sorted by name'
        raise BadMessage(name, f"expected {expected}, got {_cut(text)}")


def _labels_size(serialized: bytes, labels: Labels) -> int:
    return 2 * len(serialized) + _LABEL_BYTES * len(labels)


_known_labels: ByteCache[bytes, Labels] = ByteCache(LABELS_BYTES, _labels_size)


def _labels(serialized: bytes) -> Labels:
    return _known_labels.get_or_make(serialized, _check_labels)


def _check_labels(serialized: bytes) -> Labels:
    series = Series.FromString(serialized)
    return check_labels(tuple(sorted((label.name, label.value) for label in series.labels if label.value)))


def check_labels(pairs: Labels) -> Labels:
    """Returns the labels of a series."""
    if len(pairs) > MAX_LABELS:
        raise BadMessage("series.labels", f"expected at most {MAX_LABELS} labels, got {len(pairs)}")
    if len({name for name, _ in pairs}) != len(pairs):
        raise BadMessage("series.labels", f"expected each label once, got {_cut(str(pairs))}")
    for name, value in pairs:
        check_text("series.labels.name", name)
        check_text("series.labels.value", value)
    size = sum(len(name) + len(value) for name, value in pairs)
    if size > MAX_LABELS_TEXT:
        raise BadMessage("series.labels", f"expected at most {MAX_LABELS_TEXT} characters of labels, got {size}")
    return pairs


def _cut(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
