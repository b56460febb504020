import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streams.operators.attach import ThreadIntervals, covering, in_order, join

TIDS = st.integers(1, 3)
TIMES = st.integers(0, 40) | st.integers(2**60, 2**60 + 20) | st.integers(2**62, 2**62 + 20)


def oracle(tid: int, time: int, found: list[tuple[int, int, int]]) -> int:
    """Among the thread's intervals sorted by start: the last that started, else the first of those that end last."""
    started = [(start, row) for row, (t, start, _) in enumerate(found) if t == tid and start <= time]
    if not started:
        return -1
    last = max(started)[1]
    if time < found[last][2]:
        return last
    latest = max(found[row][2] for _, row in started)
    return next(row for _, row in sorted(started) if found[row][2] == latest) if time < latest else -1


@given(st.lists(st.tuples(TIDS, TIMES, st.integers(0, 30)), max_size=25), st.lists(st.tuples(TIDS, TIMES), max_size=25))
def test_covering_is_what_a_search_by_hand_finds(
    given_intervals: list[tuple[int, int, int]], samples: list[tuple[int, int]]
) -> None:
    tid, start, length = np.array(given_intervals, dtype=np.int64).reshape(-1, 3).T
    contexts = np.zeros((len(tid), 24), np.uint8)
    unsorted = ThreadIntervals(tid.astype(np.uint64), start, start + length, contexts, np.full(len(tid), "", object))
    known = join([unsorted, join([])])
    found = list(
        zip(known.thread.tolist(), known.start_monotonic_ns.tolist(), known.end_monotonic_ns.tolist(), strict=True)
    )
    assert found == sorted(found, key=lambda interval: interval[:2])
    tids = np.array([t for t, _ in samples], dtype=np.uint64)
    times = np.array([t for _, t in samples], dtype=np.int64)
    result = covering(tids, times, known).tolist()
    assert result == [oracle(t, time, found) for t, time in samples]
    for (t, time), row in zip(samples, result, strict=True):
        assert row < 0 or (found[row][0] == t and found[row][1] <= time < found[row][2])


@given(st.lists(st.tuples(TIDS, TIMES), max_size=25))
def test_the_order_of_intervals_is_the_same_where_threads_are_known_to_be_small_numbers(
    given_intervals: list[tuple[int, int]],
) -> None:
    tid, start = np.array(given_intervals, dtype=np.int64).reshape(-1, 2).T
    contexts = np.repeat(np.arange(len(tid), dtype=np.uint8)[:, None], 24, axis=1)
    names = np.arange(len(tid)).astype(str).astype(object)
    intervals = ThreadIntervals(tid.astype(np.uint64), start, start + 1, contexts, names)
    found, expected = in_order(intervals, threads=4), in_order(intervals)
    for name, column in vars(expected).items():
        assert getattr(found, name).tolist() == column.tolist()


def test_no_intervals_cover_nothing() -> None:
    assert covering(np.array([1], np.uint64), np.array([5]), join([])).tolist() == [-1]
