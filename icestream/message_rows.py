"""Messages of our topics as rows for people: plain dicts of text and numbers.

Every function takes a message's bytes and yields one row per thing that the topic is about. What cannot be decoded, or
contradicts itself, raises ValueError.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from icestream import topics
from icestream.packed import column
from icestream.stack_names import StackNames
from icestream.times import format_unix_nano
from icestream.v1.activity_pb2 import ActivityBatch
from icestream.v1.common_pb2 import Series
from icestream.v1.raw_pb2 import RawBatch
from icestream.v1.samples_pb2 import SampleBatch
from icestream.v1.stacks_pb2 import StackBatch
from icestream.v1.symbols_pb2 import SymbolFile, SymbolRequest

Row = dict[str, str | int | float]

M = TypeVar("M", bound=Message)

_FUNCTIONS_SHOWN = 5


def samples(data: bytes, names: StackNames) -> Iterator[Row]:
    """One row a sample."""
    batch = _parse(SampleBatch(), data)
    fields = ("offset_ms", "series", "pid", "tid", "stack_id", "context", "count", "value")
    for offset_ms, series, pid, tid, stack, context, count, value in _rows(batch, "sample", fields):
        labels = _labels(batch.series[series])
        yield {
            "time": _time((batch.start_unix_milli + offset_ms) * 10**6),
            "host": batch.host_id,
            "service": labels.pop("service", ""),
            "pid": pid,
            "tid": tid,
            "trace_id": _id(batch.context_trace_ids, context - 1, 16),
            "span_id": _id(batch.context_span_ids, context - 1, 8),
            "value": value,
            "count": count,
            "function": names.leaf(stack),
            "stack_id": f"{stack:016x}",
            "profile_type": batch.profile_type,
            "labels": " ".join(f"{name}={value}" for name, value in labels.items()),
        }


def raw(data: bytes, names: StackNames) -> Iterator[Row]:
    """One row a batch."""
    batch = _parse(RawBatch(), data)
    yield {
        "time": _time(batch.start_unix_nano),
        "host": batch.host_id,
        "batch": f"{batch.id.sequence}.{batch.id.part + 1}/{batch.id.parts}",
        "seconds": (batch.end_unix_nano - batch.start_unix_nano) / 10**9,
        "samples": len(batch.sample_stack),
        "stacks": len(batch.stack_depth),
        "locations": len(batch.location_mapping),
        "lost": batch.lost_samples,
        "bytes": len(data),
        "profile_type": batch.profile_type,
    }


def activity(data: bytes, names: StackNames) -> Iterator[Row]:
    """One row an interval."""
    batch = _parse(ActivityBatch(), data)
    fields = ("start_offset_ns", "duration_ns", "thread_cpu_ns", "pid", "tid", "context", "service")
    for start, duration, cpu, pid, tid, context, service in _rows(batch, "interval", fields):
        yield {
            "time": _time(batch.start_unix_nano + start),
            "host": batch.host_id,
            "service": batch.strings[service],
            "pid": pid,
            "tid": tid,
            "trace_id": _id(batch.context_trace_ids, context, 16),
            "span_id": _id(batch.context_span_ids, context, 8),
            "duration_ms": duration / 10**6,
            "thread_cpu_ms": cpu / 10**6,
        }


def stacks(data: bytes, names: StackNames) -> Iterator[Row]:
    """One row a batch."""
    batch = _parse(StackBatch(), data)
    functions = [batch.strings[i] for i in batch.line_function[:_FUNCTIONS_SHOWN]]
    yield {
        "time": _time(batch.seen_unix_nano),
        "host": batch.source.batch.collector or "[resolve]",
        "nodes": len(batch.node_id),
        "locations": len(batch.location_id),
        "named": int(np.count_nonzero(column(batch, "location_version"))),
        "functions": " ".join(functions) + (" ..." if len(batch.line_function) > _FUNCTIONS_SHOWN else ""),
    }


def symbol_requests(data: bytes, names: StackNames) -> Iterator[Row]:
    request = _parse(SymbolRequest(), data)
    yield {
        "time": _time(request.requested_unix_nano),
        "host": request.host_id,
        "build_id": request.build_id,
        "attempt": request.attempt,
        "file": request.file,
    }


def symbols(data: bytes, names: StackNames) -> Iterator[Row]:
    file = _parse(SymbolFile(), data)
    yield {
        "host": file.host_id or "[upload]",
        "build_id": file.build_id,
        "version": file.version,
        "size": file.size,
        "chunk": f"{file.chunk + 1}/{file.chunks}" if file.chunks else "",
        "uri": file.uri,
        "error": file.error,
    }


def dead_letter(data: bytes, names: StackNames) -> Iterator[Row]:
    """How it begins; what failed is in the message's headers."""
    yield {"bytes": len(data), "begins": data[:24].hex(" ")}


DECODERS: dict[str, Callable[[bytes, StackNames], Iterator[Row]]] = {
    topics.RAW: raw,
    topics.ACTIVITY: activity,
    topics.STACKS: stacks,
    topics.SAMPLES: samples,
    topics.SYMBOL_REQUESTS: symbol_requests,
    topics.SYMBOLS: symbols,
    topics.DEAD_LETTERS: dead_letter,
}


def _parse(message: M, data: bytes) -> M:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(f"not a {message.DESCRIPTOR.name}: {error}") from None
    return message


def _rows(message: Message, prefix: str, fields: Sequence[str]) -> Iterator[tuple[int, ...]]:
    columns = [column(message, f"{prefix}_{name}").tolist() for name in fields]
    lengths = {name: len(values) for name, values in zip(fields, columns, strict=True)}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns of different lengths: {lengths}")
    return zip(*columns, strict=True)


def _labels(series: Series) -> dict[str, str]:
    return {label.name: label.value for label in series.labels}


def _id(ids: bytes, row: int, size: int) -> str:
    """Hex; "" for none, and for zeros."""
    found = ids[row * size : (row + 1) * size] if row >= 0 else b""
    return found.hex() if any(found) else ""


def _time(unix_nano: int) -> str:
    try:
        return format_unix_nano(unix_nano)
    except (ValueError, OverflowError, OSError):
        return f"{unix_nano} ns"
