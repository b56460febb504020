"""Takes apart what bpf/profile.bpf.c puts into its buffers, into columns. Uses only array operations."""

import codecs
from dataclasses import dataclass

import numpy as np

from collector.bpf.ringbuf import BUSY, LENGTH
from icestream.columns import index_ranges

SAMPLE_WORDS = 8  # header, time, stack, pid and tid, trace ID (2), span ID, key of the span's name
WAIT_WORDS = 11  # the same fields of a wait (of its beginning, but the time); distance; nanoseconds: wait, run queue
STACK, THREAD, SPAN = 1, 2, 3
SPAN_NAME_BYTES = 128
"""Longer names of spans are cut."""
REQUEST_WORDS = 4  # header; kind and pid; value; time
_HEAD_WORDS = 4  # of a description: marker; key; pid, kind, end, length; depths of kernel, user, managed

_COLUMNS = ("key", "pid", "kind", "end", "length", "kernel_depth", "user_depth", "managed_depth")


@dataclass(frozen=True)
class Descriptions:
    """d descriptions in the order in which they were made."""

    key: np.ndarray  # uint64 (d,)
    pid: np.ndarray  # uint32 (d,)
    kind: np.ndarray  # uint8 (d,), STACK, THREAD or SPAN
    end: np.ndarray  # uint8 (d,), why the user part of a stack ends, row of samples.ENDS
    length: np.ndarray  # uint16 (d,), words
    kernel_depth: np.ndarray  # uint16 (d,), frames, and words
    user_depth: np.ndarray  # uint16 (d,), frames, and words
    managed_depth: np.ndarray  # uint16 (d,), frames, two words each
    start: np.ndarray  # int64 (d,), first word in `words`
    words: np.ndarray  # uint64


def complete_samples(unread: np.ndarray) -> np.ndarray:
    """The complete records at the start of a buffer of samples, as a view (n, SAMPLE_WORDS)."""
    return _complete(unread, SAMPLE_WORDS)


def complete_waits(unread: np.ndarray) -> np.ndarray:
    """The complete records at the start of the buffer of waits, as a view (n, WAIT_WORDS)."""
    return _complete(unread, WAIT_WORDS)


def complete_requests(unread: np.ndarray) -> np.ndarray:
    """The complete records at the start of the buffer of requests, as a view (n, REQUEST_WORDS)."""
    return _complete(unread, REQUEST_WORDS)


def complete_descriptions(unread: np.ndarray, marker: int) -> int:
    """How many words at the start of a buffer of descriptions are complete.

    Records differ in length, so the marker shows where they start. A record that is not complete yet may hold anything,
    even markers of old records. So only the unbroken chain of records from the start counts.
    """
    starts = np.flatnonzero(unread == np.uint64(marker)) - 1
    if len(starts) == 0 or starts[0] != 0:
        return 0
    headers = unread[starts]
    ends = starts + 1 + (headers & LENGTH).astype(np.int64) // 8
    broken = ((headers & BUSY) != 0) | (ends > len(unread))
    broken[1:] |= starts[1:] != ends[:-1]
    count = _first_true(broken)
    return int(ends[count - 1]) if count else 0


def parse_descriptions(words: np.ndarray, marker: int) -> Descriptions:
    """Parses complete records, headers included."""
    starts = np.flatnonzero(words == np.uint64(marker))
    nothing = np.empty(0, np.uint64)
    key, what, depths = (words[starts + i] if len(starts) else nothing for i in (1, 2, 3))
    return Descriptions(
        key=key,
        pid=what.astype(np.uint32),
        kind=(what >> np.uint64(32)).astype(np.uint8),
        end=(what >> np.uint64(40)).astype(np.uint8),
        length=(what >> np.uint64(48)).astype(np.uint16),
        kernel_depth=depths.astype(np.uint16),
        user_depth=(depths >> np.uint64(16)).astype(np.uint16),
        managed_depth=(depths >> np.uint64(32)).astype(np.uint16),
        start=starts + _HEAD_WORDS,
        words=words,
    )


def select(descriptions: Descriptions, rows: np.ndarray) -> Descriptions:
    """Only these rows (indices or mask)."""
    columns = {name: getattr(descriptions, name)[rows] for name in (*_COLUMNS, "start")}
    return Descriptions(**columns, words=descriptions.words)


def compact(descriptions: Descriptions, rows: np.ndarray) -> Descriptions:
    """Only these rows, without the words of others."""
    chosen = select(descriptions, rows)
    length = chosen.length.astype(np.int64)
    columns = {name: getattr(chosen, name) for name in _COLUMNS}
    words = descriptions.words[index_ranges.expand(chosen.start, length)]
    return Descriptions(**columns, start=index_ranges.starts(length), words=words)


def concatenate(first: Descriptions, second: Descriptions) -> Descriptions:
    joined = {name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in _COLUMNS}
    start = np.concatenate([first.start, second.start + len(first.words)])
    return Descriptions(**joined, start=start, words=np.concatenate([first.words, second.words]))


def frames(descriptions: Descriptions) -> np.ndarray:
    """Kernel and user frames of all rows, one row after the other (uint64)."""
    depth = descriptions.kernel_depth.astype(np.int64) + descriptions.user_depth
    words: np.ndarray = descriptions.words[index_ranges.expand(descriptions.start, depth)]
    return words


def managed_frames(descriptions: Descriptions) -> np.ndarray:
    """The two words of each managed frame of all rows, one row after the other (uint64, (p, 2))."""
    start = descriptions.start + descriptions.kernel_depth + descriptions.user_depth
    words: np.ndarray = descriptions.words[index_ranges.expand(start, 2 * descriptions.managed_depth.astype(np.int64))]
    return words.reshape(-1, 2)


def thread_names(descriptions: Descriptions) -> dict[int, str]:
    """Thread ID -> its latest name."""
    threads = select(descriptions, descriptions.kind == THREAD)
    names = descriptions.words[index_ranges.expand(threads.start, threads.length.astype(np.int64))].view("S16").tolist()
    return {tid: name.decode(errors="replace") for tid, name in zip(threads.key.tolist(), names, strict=True)}


def span_names(descriptions: Descriptions) -> dict[int, str]:
    """Key -> name of a span, without names that are not UTF-8."""
    spans = select(descriptions, descriptions.kind == SPAN)
    words = descriptions.words[index_ranges.expand(spans.start, spans.length.astype(np.int64))]
    names = {}
    for key, name in zip(spans.key.tolist(), words.view(f"S{SPAN_NAME_BYTES}").tolist(), strict=True):
        try:
            names[key] = codecs.utf_8_decode(name, "strict", len(name) < SPAN_NAME_BYTES)[0]
        except UnicodeDecodeError:
            continue
    return names


def distinct_contexts(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct contexts (c, 3) of contexts (n, 3), without empty ones; and for each of n its row + 1, or 0."""
    rows = np.zeros(len(words), np.uint32)
    shown = np.flatnonzero(words.any(axis=1))
    if len(shown) == 0:
        return np.empty((0, 3), np.uint64), rows
    contexts = words[shown]
    order = np.lexsort(contexts.T)
    contexts = contexts[order]
    new = np.empty(len(contexts), bool)
    new[0] = True
    new[1:] = (contexts[1:] != contexts[:-1]).any(axis=1)
    rows[shown[order]] = np.cumsum(new)
    return contexts[new], rows


def _complete(unread: np.ndarray, words: int) -> np.ndarray:
    records = unread[: len(unread) // words * words].reshape(-1, words)
    return records[: _first_true((records[:, 0] & BUSY) != 0)]


def _first_true(mask: np.ndarray) -> int:
    return int(mask.argmax()) if mask.any() else len(mask)
