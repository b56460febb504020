"""Messages of the topics as rows for people: plain dicts of text and numbers.

Every function takes a message's bytes and yields a row for each thing that the topic is about. A message that cannot be
decoded, or that contradicts itself, raises BadMessage.
"""

from collections.abc import Callable, Iterator

import numpy as np

from icestream import topics
from icestream.messages.activity import decode_activity
from icestream.messages.raw import decode_raw
from icestream.messages.samples import decode_samples
from icestream.messages.stack_names import StackNames
from icestream.messages.stacks import decode_stacks
from icestream.messages.symbols import decode_symbol_file, decode_symbol_request
from icestream.times import format_unix_nano

Row = dict[str, str | int | float]

_FUNCTIONS_SHOWN = 5


def samples(data: bytes, names: StackNames) -> Iterator[Row]:
    """Yields a row for each sample."""
    columns = decode_samples(data)
    contexts = _hex_contexts(np.vstack([np.zeros((1, 24), np.uint8), columns.contexts]))
    rows = zip(
        columns.time_unix_milli.tolist(), columns.series.tolist(), columns.pid.tolist(), columns.tid.tolist(),
        columns.stack_id.tolist(), columns.context.tolist(), columns.count.tolist(), columns.value.tolist(),
        strict=True,
    )  # fmt: skip
    for time_unix_milli, series, pid, tid, stack_id, context, count, value in rows:
        labels = dict(columns.labels[series])
        trace_id, span_id = contexts[context]
        yield {
            "time": format_unix_nano(time_unix_milli * 10**6),
            "host_id": columns.host_id,
            "service": labels.pop("service", ""),
            "pid": pid,
            "tid": tid,
            "trace_id": trace_id,
            "span_id": span_id,
            "value": value,
            "count": count,
            "function": names.leaf(stack_id),
            "stack_id": f"{stack_id:016x}",
            "profile_type": columns.profile_type,
            "labels": " ".join(f"{name}={value}" for name, value in labels.items()),
        }


def raw(data: bytes, names: StackNames) -> Iterator[Row]:
    """Yields a row for each batch."""
    columns = decode_raw(data)
    yield {
        "time": format_unix_nano(columns.start_unix_nano),
        "host_id": columns.host_id,
        "batch": f"{columns.id.sequence}.{columns.id.part + 1}/{columns.id.parts}",
        "seconds": (columns.end_unix_nano - columns.start_unix_nano) / 10**9,
        "samples": len(columns.sample_stack),
        "stacks": len(columns.stack_depth),
        "locations": len(columns.location_mapping),
        "lost": columns.lost_samples,
        "dropped": columns.dropped_samples,
        "bytes": len(data),
        "profile_type": columns.profile_type,
    }


def activity(data: bytes, names: StackNames) -> Iterator[Row]:
    """Yields a row for each interval."""
    columns = decode_activity(data)
    contexts = _hex_contexts(columns.contexts)
    rows = zip(
        columns.start_unix_nano.tolist(), columns.duration_ns.tolist(), columns.thread_cpu_ns.tolist(),
        columns.pid.tolist(), columns.tid.tolist(), columns.context.tolist(), columns.service.tolist(),
        columns.labels.tolist(), strict=True,
    )  # fmt: skip
    for start_unix_nano, duration_ns, thread_cpu_ns, pid, tid, context, service, labels in rows:
        trace_id, span_id = contexts[context]
        yield {
            "time": format_unix_nano(start_unix_nano),
            "host_id": columns.host_id,
            "service": columns.strings[service],
            "labels": columns.strings[labels],
            "pid": pid,
            "tid": tid,
            "trace_id": trace_id,
            "span_id": span_id,
            "duration_ms": duration_ns / 10**6,
            "thread_cpu_ms": thread_cpu_ns / 10**6,
        }


def stacks(data: bytes, names: StackNames) -> Iterator[Row]:
    """Yields a row for each batch."""
    columns = decode_stacks(data)
    functions = [columns.strings[row] for row in columns.line_function[:_FUNCTIONS_SHOWN].tolist()]
    yield {
        "time": format_unix_nano(columns.seen_unix_nano),
        "host_id": columns.source.batch.collector or "[resolve]",
        "nodes": len(columns.node_id),
        "locations": len(columns.location_id),
        "named": int(np.count_nonzero(columns.location_version)),
        "functions": " ".join(functions) + (" ..." if len(columns.line_function) > _FUNCTIONS_SHOWN else ""),
    }


def symbol_requests(data: bytes, names: StackNames) -> Iterator[Row]:
    request = decode_symbol_request(data)
    yield {
        "time": format_unix_nano(request.requested_unix_nano),
        "host_id": request.host_id,
        "build_id": request.build_id,
        "attempt": request.attempt,
        "file": request.file,
    }


def symbols(data: bytes, names: StackNames) -> Iterator[Row]:
    file = decode_symbol_file(data)
    yield {
        "host_id": file.host_id or "[upload]",
        "build_id": file.build_id,
        "version": file.version,
        "size": file.size,
        "chunk": f"{file.chunk + 1}/{file.chunks}" if file.chunks else "",
        "uri": file.uri,
        "error": file.error,
    }


def dead_letter(data: bytes, names: StackNames) -> Iterator[Row]:
    """Yields the first bytes. The message's headers say what failed."""
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


def _hex_contexts(contexts: np.ndarray) -> list[tuple[str, str]]:
    """Returns (trace ID, span ID) in hex; "" for zeros."""
    return [(_hex(context[:16]), _hex(context[16:])) for context in map(bytes, contexts)]


def _hex(data: bytes) -> str:
    return data.hex() if any(data) else ""
