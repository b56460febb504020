"""Many raw batches as one, so that a job computes their columns at once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from icestream.columns import index_ranges
from icestream.messages.raw import RawColumns
from icestream.v1.common_pb2 import Mapping


@dataclass(frozen=True)
class MergedBatches:
    """The columns of some batches, one batch after the other; the header is that of the first one."""

    columns: RawColumns
    batches: Sequence[RawColumns]
    locations: np.ndarray  # int64 (batches,), how many each batch has
    samples: np.ndarray  # int64 (batches,)

    def of_samples(self, values: Sequence[int]) -> np.ndarray:
        """Returns for each sample the value of its batch, int64."""
        return np.repeat(np.array(values, np.int64), self.samples)


def merge(batches: Sequence[RawColumns]) -> MergedBatches:
    """Merges at least one batch. Equal texts and mappings become one."""
    strings: dict[str, int] = {}
    mappings: dict[tuple[int, str, str], tuple[int, Mapping]] = {}
    string_rows = [_rows(batch.strings, strings) for batch in batches]
    mapping_rows = [_mapping_rows(batch.mappings, mappings) for batch in batches]
    locations = np.array([len(batch.location_mapping) for batch in batches])
    stacks = np.array([len(batch.stack_depth) for batch in batches])
    series = np.array([len(batch.series) for batch in batches])
    contexts = np.array([len(batch.contexts) for batch in batches])
    samples = np.array([len(batch.time_unix_nano) for batch in batches])

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(batch, name) for batch in batches])

    def mapped(name: str, rows: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate([new[getattr(batch, name)] for batch, new in zip(batches, rows, strict=True)])

    def moved(name: str, counts: np.ndarray) -> np.ndarray:
        """Indices into columns of which each batch has `counts` rows."""
        first = index_ranges.starts(counts).astype(np.uint32)
        return np.concatenate([getattr(batch, name) + by for batch, by in zip(batches, first, strict=True)])

    own_context = joined("sample_context")
    context = moved("sample_context", contexts)
    context[own_context == 0] = 0
    columns = replace(
        batches[0],
        strings=list(strings),
        mappings=[mapping for _, mapping in mappings.values()],
        series=[labels for batch in batches for labels in batch.series],
        location_mapping=mapped("location_mapping", mapping_rows),
        location_address=joined("location_address"),
        location_function=mapped("location_function", string_rows),
        location_file=mapped("location_file", string_rows),
        location_line=joined("location_line"),
        location_line_count=joined("location_line_count"),
        line_function=mapped("line_function", string_rows),
        line_file=mapped("line_file", string_rows),
        line_number=joined("line_number"),
        line_start_line=joined("line_start_line"),
        stack_depth=joined("stack_depth"),
        stack_id=joined("stack_id"),
        stack_frames=moved("stack_frames", locations),
        contexts=joined("contexts"),
        time_unix_nano=joined("time_unix_nano"),
        sample_series=moved("sample_series", series),
        sample_pid=joined("sample_pid"),
        sample_tid=joined("sample_tid"),
        sample_stack=moved("sample_stack", stacks),
        sample_context=context,
        sample_count=joined("sample_count"),
        sample_value=joined("sample_value"),
    )
    return MergedBatches(columns, batches, locations, samples)


def _rows(strings: Sequence[str], known: dict[str, int]) -> np.ndarray:
    """Returns the row of each text in `known`, to which it adds new ones: uint32."""
    return np.array([known.setdefault(text, len(known)) for text in strings], np.uint32)


def _mapping_rows(mappings: Sequence[Mapping], known: dict[tuple[int, str, str], tuple[int, Mapping]]) -> np.ndarray:
    rows = []
    for mapping in mappings:
        key = mapping.kind, mapping.build_id, mapping.file
        rows.append(known.setdefault(key, (len(known), mapping))[0])
    return np.array(rows, np.uint32)
