"""Datagrams of activity -> the columns of all of them."""

import numpy as np

from collector.activity.activity_datagram import ActivityDatagram
from collector.activity.datagram_buffer import ReceivedDatagram
from collector.activity.intervals import ActivityIntervals
from icestream.messages.activity import STATUSES
from icestream.v1.activity_pb2 import Span

_ERROR = STATUSES.index("error")


def join_datagrams(received: list[ReceivedDatagram], dropped: int) -> ActivityIntervals:
    """Joins all datagrams, with each context once. Services and operations are as applications call them."""
    datagrams = [r.datagram for r in received]
    rows = [len(d.start_monotonic_ns) for d in datagrams]
    first_context = np.cumsum([0, *(len(d.contexts) for d in datagrams)], dtype=np.uint32)[:-1]
    all_contexts = np.concatenate([np.zeros((0, 24), np.uint8), *(d.contexts for d in datagrams)])
    context = _column(np.uint32, [d.context + first for d, first in zip(datagrams, first_context, strict=True)])
    used, context = np.unique(context, return_inverse=True)
    contexts, same = np.unique(np.ascontiguousarray(all_contexts[used]).view("V24").ravel(), return_inverse=True)
    bytes_of_contexts = contexts.view(np.uint8).reshape(-1, 24)
    last = np.zeros(len(contexts), np.intp)
    last[same] = used  # of equal contexts, the one that came last knows best
    entries = np.concatenate([np.zeros((0, 8), np.uint8), *(d.entry_span_ids for d in datagrams)])[last]
    all_operations = [operation for d in datagrams for operation in d.operations]
    operations = [all_operations[row] for row in last.tolist()]
    strings = {name: row for row, name in enumerate(dict.fromkeys(["", *(d.service for d in datagrams), *operations]))}
    services = np.array([strings[d.service] for d in datagrams], np.uint32)
    return ActivityIntervals(
        start_monotonic_ns=_column(np.uint64, [d.start_monotonic_ns for d in datagrams]),
        duration_ns=_column(np.uint64, [d.duration_ns for d in datagrams]),
        thread_cpu_ns=_column(np.uint64, [d.thread_cpu_ns for d in datagrams]),
        pid=np.repeat(np.array([r.pid for r in received], np.uint32), rows),
        tid=_column(np.uint32, [r.tid for r in received]),
        context=same[context].astype(np.uint32),
        service=np.repeat(services, rows),
        trace_ids=bytes_of_contexts[:, :16].tobytes(),
        span_ids=bytes_of_contexts[:, 16:].tobytes(),
        entry_span_ids=entries.tobytes(),
        operation=np.array([strings[operation] for operation in operations], np.uint32),
        strings=list(strings),
        spans=[span for datagram in datagrams for span in _spans(datagram)],
        span_pid=np.repeat(
            np.array([r.pid for r in received], np.uint32), np.array([len(d.span_names) for d in datagrams], np.intp)
        ),
        dropped=dropped,
    )


def _column(dtype: type[np.unsignedinteger], parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype, copy=False)


def _spans(datagram: ActivityDatagram) -> list[Span]:
    identifiers = datagram.span_ids.tobytes()
    return [
        Span(
            trace_id=identifiers[at : at + 16],
            span_id=identifiers[at + 16 : at + 24],
            parent_span_id=identifiers[at + 24 : at + 32].lstrip(b"\0") and identifiers[at + 24 : at + 32],
            name=name,
            service=datagram.service,
            start_unix_nano=start,
            end_unix_nano=end,
            operation=name if is_entry else "",
            status=_ERROR if has_error else 0,
        )
        for at, name, start, end, is_entry, has_error in zip(
            range(0, len(identifiers), 32),
            datagram.span_names,
            datagram.span_start_monotonic_ns.tolist(),
            datagram.span_end_monotonic_ns.tolist(),
            datagram.span_is_entry.tolist(),
            datagram.span_has_error.tolist(),
            strict=True,
        )
    ]
