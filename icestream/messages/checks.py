"""Checks that several messages share, and the limits of what a message may hold."""

import functools
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from icestream import packed
from icestream.topics import MAX_MESSAGE_BYTES
from icestream.v1.common_pb2 import BatchId, Mapping, Series

MAX_UNIX_NANO = 4_102_444_800 * 10**9
"""Times are before the year 2100, so that every type that holds a time on its way can, and sums do not overflow."""
MAX_DAYS = 60
"""Days that the rows of one message lie on: each day is another partition of a table."""
MAX_PARTS = 10_000
MAX_COUNT = 2**40
MAX_TEXT = 1024
"""Characters of an ID, and of a label's name or value."""
MAX_FILE = 4 * MAX_TEXT
"""Characters of a mapping's path."""
MAX_LABELS = 256
MAX_LABELS_TEXT = 64_000
"""Characters of all labels of a series, so that a message always has room for a series."""
MAX_SUM = 2.0**62
"""A column's absolute values sum up to less, so that neither a sum nor its negative overflows."""
_DAY_NS = 86_400 * 10**9

MessageT = TypeVar("MessageT", bound=Message)
Labels = tuple[tuple[str, str], ...]
"""(name, value), sorted by name; no name twice, no empty value."""


class BadMessage(ValueError):
    """A message that cannot be processed or stored. The text says what was expected and what came."""


def parse(kind: type[MessageT], data: bytes | None) -> MessageT:
    """Returns the message that is not checked yet. Raises BadMessage."""
    name = kind.DESCRIPTOR.name
    data = data or b""
    if len(data) > MAX_MESSAGE_BYTES:
        raise BadMessage(f"{name}: expected at most {MAX_MESSAGE_BYTES} bytes, got {len(data)}")
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise BadMessage(f"not a {name}: {error}") from None
    return message


def column(message: Message, name: str, rows: int, optional: bool = False) -> np.ndarray:
    """Returns a column with `rows` entries. An optional column that is empty is all zeros."""
    values = packed.column(message, name)
    if optional and not len(values):
        return np.zeros(rows, values.dtype)
    if len(values) != rows:
        raise BadMessage(f"{name}: expected {rows} entries, as the columns beside it have, got {len(values)}")
    return values


def columns(message: Message, *names: str) -> list[np.ndarray]:
    """Returns parallel columns."""
    first = packed.column(message, names[0])
    return [first, *(column(message, name, len(first)) for name in names[1:])]


def contexts(trace_ids: bytes, span_ids: bytes) -> np.ndarray:
    """Returns trace contexts as uint8 (c, 24): trace ID, span ID."""
    if len(trace_ids) % 16 or len(span_ids) % 8 or len(trace_ids) // 16 != len(span_ids) // 8:
        raise BadMessage(
            f"contexts: expected 16 bytes of trace IDs for every 8 bytes of span IDs, got {len(trace_ids)} bytes and"
            f" {len(span_ids)} bytes"
        )
    return np.hstack(
        [np.frombuffer(trace_ids, np.uint8).reshape(-1, 16), np.frombuffer(span_ids, np.uint8).reshape(-1, 8)]
    )


def strings(values: Sequence[str]) -> list[str]:
    """Returns the strings of a message. A message that names nothing may have none; then every index is 0."""
    texts = list(values) or [""]
    if texts[0]:
        raise BadMessage(f'strings[0]: expected "", got {_cut(texts[0])}')
    return texts


def mapping(mapping: Mapping) -> Mapping:
    """Returns the mapping."""
    if mapping.kind not in Mapping.Kind.values():
        raise BadMessage(f"mappings: expected a kind of Mapping.Kind, got {mapping.kind}")
    if len(mapping.build_id) > MAX_TEXT:
        raise BadMessage(f"mappings: expected at most {MAX_TEXT} characters of build ID, got {_cut(mapping.build_id)}")
    if len(mapping.file) > MAX_FILE:
        raise BadMessage(f"mappings: expected at most {MAX_FILE} characters of path, got {_cut(mapping.file)}")
    return mapping


def labels(series: Series) -> Labels:
    """Returns the labels of a series."""
    return _labels(series.SerializeToString())


def check_index(name: str, values: np.ndarray, limit: int) -> None:
    """Checks that all indices are below `limit`."""
    if len(values) and values.max() >= limit:
        raise BadMessage(f"{name}: expected indices below {limit}, got {values.max()}")


def check_sum(name: str, values: np.ndarray) -> None:
    """Checks that the absolute values sum up to less than MAX_SUM."""
    total = np.abs(values.astype(float)).sum()
    if total >= MAX_SUM:
        raise BadMessage(f"{name}: expected a sum below {MAX_SUM:.3g}, got {total:.3g}")


def check_batch_id(name: str, batch_id: BatchId) -> None:
    check_text(f"{name}.collector", batch_id.collector)
    check_unix_nano(f"{name}.started_unix_nano", batch_id.started_unix_nano)
    if not 1 <= batch_id.sequence < 2**62:
        raise BadMessage(f"{name}.sequence: expected 1 or more, got {batch_id.sequence}")
    check_part(name, batch_id.part, batch_id.parts)


def check_count(name: str, count: int) -> None:
    """Checks that a count can be added up with others."""
    if count >= MAX_COUNT:
        raise BadMessage(f"{name}: expected less than {MAX_COUNT}, got {count}")


def check_part(name: str, part: int, parts: int) -> None:
    if not part < parts <= MAX_PARTS:
        raise BadMessage(f"{name}: expected part 0 to parts - 1 of at most {MAX_PARTS}, got part {part} of {parts}")


def check_profile_type(text: str) -> None:
    if text.count(":") != 4 or len(text) > MAX_TEXT:
        raise BadMessage(f"profile_type: expected name:type:unit:period type:period unit, got {_cut(text)}")


def check_unix_nano(name: str, unix_nano: int) -> None:
    if unix_nano >= MAX_UNIX_NANO:
        raise BadMessage(f"{name}: expected a time before the year 2100, got {unix_nano} ns")


def check_times(name: str, unix_nano: np.ndarray) -> None:
    """Checks a column of int64 times: from 1970 to 2100, on at most MAX_DAYS days."""
    if not len(unix_nano):
        return
    first, last = int(unix_nano.min()), int(unix_nano.max())
    if first < 0 or last >= MAX_UNIX_NANO:
        raise BadMessage(f"{name}: expected times between 1970 and 2100, got {first} to {last} ns")
    if last - first > MAX_DAYS * _DAY_NS and len(np.unique(unix_nano // _DAY_NS)) > MAX_DAYS:
        raise BadMessage(f"{name}: expected times on at most {MAX_DAYS} days, got {first} to {last} ns")


def check_text(name: str, text: str) -> None:
    if not 0 < len(text) <= MAX_TEXT:
        raise BadMessage(f"{name}: expected 1 to {MAX_TEXT} characters, got {_cut(text)}")


@functools.lru_cache(maxsize=50_000)
def _labels(serialized: bytes) -> Labels:
    series = Series.FromString(serialized)
    pairs = sorted((label.name, label.value) for label in series.labels if label.value)
    if len(pairs) > MAX_LABELS:
        raise BadMessage(f"series: expected at most {MAX_LABELS} labels, got {len(pairs)}")
    if len({name for name, _ in pairs}) != len(pairs):
        raise BadMessage(f"series: expected each label once, got {_cut(str(pairs))}")
    for name, value in pairs:
        check_text("label name", name)
        check_text("label value", value)
    size = sum(len(name) + len(value) for name, value in pairs)
    if size > MAX_LABELS_TEXT:
        raise BadMessage(f"series: expected at most {MAX_LABELS_TEXT} characters of labels, got {size}")
    return tuple(pairs)


def _cut(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
