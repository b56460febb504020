"""Buffers of the program taken apart, whatever is in them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from collector.bpf import records

MARKER = 0x1234_5678_9ABC_DEF1
BUSY = 1 << 31

words = st.one_of(st.integers(0, (1 << 64) - 1), st.sampled_from([MARKER, 24, 24 | BUSY, 0]))
payloads = st.lists(
    st.lists(st.integers(0, (1 << 64) - 1).filter(lambda word: word != MARKER), max_size=20), max_size=12
)


def record(key: int, payload: list[int], header_flags: int = 0, kind: int = records.STACK) -> list[int]:
    """A third of the words are kernel frames, the last two are a Python frame where that fits, the rest user frames."""
    kernel, python = len(payload) // 3, int(len(payload) >= 2)
    what = 77 | kind << 32 | 5 << 40 | len(payload) << 48
    depths = kernel | (len(payload) - kernel - 2 * python) << 16 | python << 32
    return [8 * (4 + len(payload)) | header_flags, MARKER, key, what, depths, *payload]


@given(payloads, st.lists(words, max_size=40))
def test_descriptions_before_the_first_busy_one_are_read_and_nothing_after(
    stacks: list[list[int]], stale: list[int]
) -> None:
    done = [word for key, stack in enumerate(stacks) for word in record(key, stack)]
    busy = [8 * len(stale) | BUSY, *stale]
    unread = np.array(done + busy + record(99, [1, 2, 3]), np.uint64)
    count = records.complete_descriptions(unread, MARKER)
    assert count == len(done)
    found = records.parse_descriptions(unread[:count], MARKER)
    assert found.key.tolist() == list(range(len(stacks)))
    assert found.length.tolist() == [len(stack) for stack in stacks]
    assert (found.pid == 77).all()
    assert (found.end == 5).all()
    python = [stack[-2:] if len(stack) >= 2 else [] for stack in stacks]
    native = [stack[: len(stack) - len(frames)] for stack, frames in zip(stacks, python, strict=True)]
    assert records.frames(found).tolist() == [word for stack in native for word in stack]
    assert records.managed_frames(found).tolist() == [frames for frames in python if frames]


@given(st.lists(words, max_size=60))
def test_a_buffer_of_anything_never_fails_nor_reads_beyond_its_end(content: list[int]) -> None:
    unread = np.array(content, np.uint64)
    assert 0 <= records.complete_descriptions(unread, MARKER) <= max(len(content), 0)
    assert len(records.complete_samples(unread)) <= len(content) // records.SAMPLE_WORDS


@given(st.integers(0, 20), st.integers(0, 20))
def test_samples_are_read_up_to_the_first_that_is_not_complete(done: int, more: int) -> None:
    complete, busy = [56, 1, 2, 3, 4, 5, 6, 7], [56 | BUSY, 9, 9, 9, 9, 9, 9, 9]
    unread = np.array(complete * done + busy + complete * more, np.uint64)
    assert records.complete_samples(unread).shape == (done, records.SAMPLE_WORDS)


@given(arrays(np.uint64, st.tuples(st.integers(0, 50), st.just(3)), elements=st.integers(0, 3)))
def test_every_sample_finds_its_own_context_among_distinct_ones(contexts: np.ndarray) -> None:
    distinct, rows = records.distinct_contexts(contexts)
    assert len(np.unique(distinct, axis=0)) == len(distinct)
    none = ~contexts.any(axis=1)
    assert (rows[none] == 0).all()
    assert (distinct[rows[~none] - 1] == contexts[~none]).all()


def test_threads_have_their_latest_name_whatever_bytes_it_has() -> None:
    def name(text: bytes) -> list[int]:
        return np.frombuffer(text.ljust(16, b"\0"), np.uint64).tolist()

    both = [*record(5, name(b"old"), kind=records.THREAD), *record(9, [1, 2, 3]), *record(6, name(b"\xff\xfe"), kind=2)]
    both += record(5, name(b"exactly 16 bytes"), kind=records.THREAD)
    found = records.parse_descriptions(np.array(both, np.uint64), MARKER)
    assert records.thread_names(found) == {5: "exactly 16 bytes", 6: "\ufffd\ufffd"}


def test_names_of_spans_are_whole_characters_and_what_is_no_text_is_no_name() -> None:
    def name(text: bytes) -> list[int]:
        return np.frombuffer(text.ljust(128, b"\0"), np.uint64).tolist()

    cut = ("x" + "é" * 70).encode()[:128]
    assert cut.endswith(b"\xc3")
    texts = [b"GET /checkout", cut, b"\xff\xfe", b"half a character \xc3", b"x" * 128, b"x" * 126 + b"\xff\xfe"]
    words = [word for key, text in enumerate(texts) for word in record(key, name(text), kind=records.SPAN)]
    words += [*record(7, name(b"a stack of such words")), *record(8, [1, 2], kind=records.THREAD)]
    found = records.parse_descriptions(np.array(words, np.uint64), MARKER)
    assert records.span_names(found) == {0: "GET /checkout", 1: "x" + "é" * 63, 4: "x" * 128}
