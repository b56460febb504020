"""Reads the tables of a pprof profile as columns: functions, mappings, locations with their lines, samples."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from gateway.errors import Refused, bad_profile
from gateway.readers.location_table import build_id
from gateway.readers.number_messages import (
    MAX_FIELDS,
    PORTION_BYTES,
    MessageFields,
    NotNumbers,
    Repeated,
    fields,
    messages,
    portions,
)
from icestream.columns import index_ranges
from icestream.messages.checks import MAX_ENTRIES, MAX_LINE, MAX_LINES, MAX_NAME
from icestream.pprof.profile_pb2 import Function, Location, Mapping, Sample

MAX_ROWS = 1_000_000
"""The most functions, and the most locations, of a profile. Each takes 150 bytes of memory, even if it is empty."""

MessageType = type[Function] | type[Location] | type[Sample]


class ById:
    """Rows by their IDs."""

    def __init__(self, ids: np.ndarray) -> None:
        """`ids`: uint64 (n,). If several rows have one ID, the last one counts."""
        self._rows = np.argsort(ids, kind="stable")
        self._ids = ids[self._rows]
        self._consecutive = bool((np.diff(self._ids) == 1).all())  # as most number them

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Returns the rows of IDs: int64. Raises KeyError with an ID that there is not."""
        if self._consecutive and len(self._ids):
            at = ids - self._ids[0]  # of smaller IDs a huge number
            known = at < len(self._ids)
        else:
            at = np.searchsorted(self._ids, ids, side="right") - 1
            known = at >= 0
            known[known] = self._ids[at[known]] == ids[known]
        if not known.all():
            raise KeyError(int(ids[~known][0]))
        found: np.ndarray = self._rows[at]
        return found


@dataclass(frozen=True)
class PprofFunctions:
    """n functions. A text is a row of `texts`; row 0 is empty."""

    by_id: ById
    name: np.ndarray  # int64 (n,), 0: it has none
    file: np.ndarray  # int64 (n,)
    start_line: np.ndarray  # int64 (n,), 0: not known
    texts: Sequence[str]


@dataclass(frozen=True)
class PprofLines:
    """The n lines of l locations: location after location, innermost first. All have names."""

    count: np.ndarray  # int64 (l,)
    function: np.ndarray  # int64 (n,), rows of functions
    number: np.ndarray  # int64 (n,)


class Labels(NamedTuple):
    """The n labels of samples, whose columns are as pprof has them."""

    sample: np.ndarray  # int64 (n,), row of the sample
    key: np.ndarray  # int64 (n,)
    text: np.ndarray  # int64 (n,)
    number: np.ndarray  # int64 (n,)


@dataclass(frozen=True)
class PprofSamples:
    """Samples."""

    count: int
    location_id: Repeated
    value: Repeated
    labels: Labels


def read_functions(serialized: Sequence[bytes], strings: Sequence[str], dropped: Counter[str]) -> PprofFunctions:
    """Counts in `dropped` the functions whose name or file is cut. Raises Refused."""
    columns = _table(Function, serialized, 5).columns
    name, system_name, file, start_line = columns[1:].view(np.int64)
    lengths = np.fromiter(map(len, strings), np.int64, len(strings))
    is_long = lengths > MAX_NAME
    texts = [text[:MAX_NAME] for text in strings] if is_long.any() else strings
    empty = lengths == 0
    name, file = _text_rows(name, empty), _text_rows(file, empty)
    unnamed = np.flatnonzero(name == 0)
    name[unnamed] = _text_rows(system_name[unnamed], empty)
    if cut := int(np.count_nonzero(is_long[name] | is_long[file])):
        dropped["names"] += cut
    return PprofFunctions(ById(columns[0]), name, file, line_numbers(start_line), texts)


def _text_rows(rows: np.ndarray, empty: np.ndarray) -> np.ndarray:
    """Returns rows of texts, 0 for those of empty texts. Raises Refused."""
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(empty):
        raise _no_string(int(rows.min() if rows.min() < 0 else rows.max()), len(empty))
    return np.where(empty[rows], 0, rows)


def text_of(strings: Sequence[str], index: int) -> str:
    """Raises Refused."""
    if not 0 <= index < len(strings):
        raise _no_string(index, len(strings))
    return strings[index]


def _no_string(index: int, strings: int) -> Refused:
    return bad_profile(f"string_table: expected indices below {strings}, got {index}")


def line_numbers(lines: np.ndarray) -> np.ndarray:
    """Returns the numbers of lines, 0 for those that are none."""
    return np.where((lines >= 0) & (lines <= MAX_LINE), lines, 0)


class PprofMapping(NamedTuple):
    """A mapping of a pprof profile."""

    id: int
    build_id: str
    file: str
    memory_start: int
    file_offset: int


def read_mappings(serialized: Sequence[bytes], strings: Sequence[str]) -> list[PprofMapping]:
    """Raises Refused."""
    if len(serialized) > MAX_ENTRIES:
        raise bad_profile(f"mapping: expected at most {MAX_ENTRIES}, got {len(serialized)}")
    try:
        mappings = [Mapping.FromString(one) for one in serialized]  # mostly so few that columns would take longer
    except DecodeError as error:
        raise bad_profile(f"no pprof profile: mapping: {error}") from None
    return [
        PprofMapping(
            mapping.id,
            build_id(text_of(strings, mapping.build_id)),
            text_of(strings, mapping.filename),
            mapping.memory_start,
            mapping.file_offset,
        )
        for mapping in mappings
    ]


class LocationIds(NamedTuple):
    """l locations as pprof has them: uint64 (l,)."""

    id: np.ndarray
    mapping_id: np.ndarray
    address: np.ndarray


def read_locations(
    serialized: Sequence[bytes], functions: PprofFunctions, dropped: Counter[str]
) -> tuple[LocationIds, PprofLines]:
    """Returns the locations, and those of their lines that have a name. Counts in `dropped` the lines beyond the limit.
    Raises Refused."""
    of = _table(Location, serialized, 3, Location.LINE_FIELD_NUMBER, 2, dropped)
    location = of.owner
    try:
        function = functions.by_id.rows(of.nested[0])
    except KeyError as error:
        raise bad_profile(f"location.line: there is no function {error}") from None
    position = index_ranges.positions(np.bincount(location))  # among the lines of the same location
    if beyond := int(np.count_nonzero(position >= MAX_LINES)):
        dropped["lines"] += beyond
    kept = (position < MAX_LINES) & (functions.name[function] > 0)
    count = np.bincount(location[kept], minlength=len(serialized))
    number = line_numbers(of.nested[1].view(np.int64))
    return LocationIds(*of.columns), PprofLines(count, function[kept], number[kept])


def read_samples(serialized: Sequence[bytes]) -> PprofSamples:
    """Reads one of the `number_messages.portions` of all samples. Raises Refused."""
    of, sample, labels = _parse(Sample, serialized, Sample.LABEL_FIELD_NUMBER)
    columns = (labels.numbers(number).view(np.int64) for number in (1, 2, 3))
    return PprofSamples(len(serialized), of.repeated(1), of.repeated(2), Labels(sample, *columns))


class _Table(NamedTuple):
    """n messages, and their m nested messages."""

    columns: np.ndarray  # uint64 (fields, n)
    owner: np.ndarray  # int64 (m,), which message each nested one is of
    nested: np.ndarray  # uint64 (fields, m)


def _table(
    message_type: MessageType, serialized: Sequence[bytes], count: int, nested: int = 0, nested_count: int = 1,
    dropped: Counter[str] | None = None,
) -> _Table:  # fmt: skip
    """Returns the numbers in the fields 1 to `count` of messages, and of the messages in field `nested`. Counts in
    `dropped` the lines of locations that it leaves out. Raises Refused."""
    if len(serialized) > MAX_ROWS:
        raise bad_profile(f"{_name(message_type)}: expected at most {MAX_ROWS}, got {len(serialized)}")
    parts, messages_before = [], 0
    for portion in portions(serialized):
        of, owner, inner = _parse(message_type, portion, nested, dropped)
        columns = np.array([of.numbers(number) for number in range(1, count + 1)])
        inner_columns = np.array([inner.numbers(number) for number in range(1, nested_count + 1)])
        parts.append(_Table(columns, owner + messages_before, inner_columns))
        messages_before += len(portion)
    return _Table(*(np.concatenate(column, axis=-1) for column in zip(*parts, strict=True)))


class _Parsed(NamedTuple):
    fields: MessageFields
    owner: np.ndarray  # int64, which message each nested message is of
    nested: MessageFields


def _parse(
    message_type: MessageType, serialized: Sequence[bytes], nested: int = 0, dropped: Counter[str] | None = None
) -> _Parsed:
    """Returns the fields of messages, and those of the messages in field `nested`. Raises Refused."""
    try:
        return _parse_numbers(serialized, nested)
    except NotNumbers:
        pass
    try:
        return _parse_numbers([_plain(message_type.FromString(one), dropped) for one in serialized], nested)
    except DecodeError as error:
        raise bad_profile(f"no pprof profile: {_name(message_type)}: {error}") from None
    except NotNumbers:
        raise bad_profile(
            f"{_name(message_type)}: expected at most {MAX_FIELDS} fields in {PORTION_BYTES} bytes"
        ) from None


def _parse_numbers(serialized: Sequence[bytes], nested: int) -> _Parsed:
    of = fields(messages(serialized))
    owner, inner = of.messages(nested)
    return _Parsed(of, owner, fields(inner))


def _plain(message: Function | Location | Sample, dropped: Counter[str] | None) -> bytes:
    """Returns a message as most write it: without fields that pprof does not have, and with numbers packed."""
    message.DiscardUnknownFields()
    if isinstance(message, Location) and len(message.line) > MAX_LINES:
        if dropped is not None:
            dropped["lines"] += len(message.line) - MAX_LINES
        del message.line[MAX_LINES:]
    return message.SerializeToString()


def _name(message_type: MessageType) -> str:
    return str(message_type.DESCRIPTOR.name).lower()
