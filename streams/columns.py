"""Messages as columns: what the operators work on."""

from dataclasses import dataclass

import numpy as np

from icestream.v1.common_pb2 import BatchId, Mapping


@dataclass(frozen=True)
class RawColumns:
    """A checked RawBatch: n samples, s stacks, f frames, l locations, c contexts. Every index is in range."""

    id: BatchId
    host_id: str
    profile_type: str
    start_unix_nano: int
    end_unix_nano: int
    period: int
    published_unix_nano: int
    activity_complete_unix_nano: int
    activity_sequence: int
    lost_samples: int
    strings: list[str]
    mappings: list[Mapping]
    series: list[tuple[tuple[str, str], ...]]  # labels, sorted by name, no name twice, no empty value
    location_mapping: np.ndarray  # uint32 (l,)
    location_address: np.ndarray  # uint64 (l,), 0 for locations named by the host
    location_function: np.ndarray  # uint32 (l,), index into strings
    location_file: np.ndarray  # uint32 (l,), index into strings
    location_line: np.ndarray  # uint32 (l,)
    stack_depth: np.ndarray  # int64 (s,)
    stack_frames: np.ndarray  # uint32 (f,), location rows, leaf first, stack after stack
    contexts: np.ndarray  # uint8 (c, 24): trace ID, span ID; no trace ID is zero
    time_unix_nano: np.ndarray  # int64 (n,), Unix time
    sample_series: np.ndarray  # uint32 (n,)
    sample_pid: np.ndarray  # uint32 (n,)
    sample_tid: np.ndarray  # uint32 (n,)
    sample_stack: np.ndarray  # uint32 (n,)
    sample_context: np.ndarray  # uint32 (n,), 0: none, else row + 1 of contexts
    sample_count: np.ndarray  # int32 (n,)
    sample_value: np.ndarray  # int64 (n,)

    @property
    def named(self) -> np.ndarray:
        """Which mappings hold locations that the host named, bool (mappings,)."""
        return np.array([mapping.kind == Mapping.NAMED for mapping in self.mappings], dtype=bool)


@dataclass(frozen=True)
class ActivityColumns:
    """A checked ActivityBatch's intervals, n of them; each covers [start_unix_nano, end_unix_nano) in Unix time."""

    id: BatchId
    host_id: str
    complete_unix_nano: int
    published_unix_nano: int
    dropped: int
    tid: np.ndarray  # uint32 (n,)
    start_unix_nano: np.ndarray  # int64 (n,)
    end_unix_nano: np.ndarray  # int64 (n,)
    contexts: np.ndarray  # uint8 (n, 24): trace ID, span ID of each interval
