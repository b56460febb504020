"""Managed frames among native frames, beside a plain loop over each stack."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collector.runtimes.frames import UNPLACED, WITH_NEXT, Kind
from collector.runtimes.merge import managed_frames, merge

Run = tuple[int, int]
"""(native user frame, how many managed frames)"""
KINDS = st.sampled_from([Kind.PYTHON_CODE, Kind.V8_FUNCTION])


@st.composite
def stacks(draw: st.DrawFn) -> tuple[int, int, list[Run], set[int], Kind]:
    """Kernel frames, user frames, runs from the leaf on, user frames of generated code, and what executes runs."""
    user = draw(st.integers(1, 12))
    frames = sorted(draw(st.sets(st.integers(0, user - 1), max_size=4)))
    runs = [(frame, draw(st.integers(1, 3))) for frame in frames]
    if draw(st.booleans()):
        runs.append((UNPLACED, draw(st.integers(1, 3))))
    return draw(st.integers(0, 3)), user, runs, draw(st.sets(st.integers(0, user - 1), max_size=4)), draw(KINDS)


def plainly(kernel: int, user: int, runs: list[Run], generated: set[int], kind: Kind) -> list[str]:
    placed = dict(runs)
    found = [f"kernel {i}" for i in range(kernel)]
    number = 0
    for i in range(user):
        if i in placed:
            found += [f"python {number + k}" for k in range(placed[i])]
            number += placed[i]
        elif not (i in generated and i - 1 in placed and kind == Kind.PYTHON_CODE):
            found.append(f"user {i}")
    return found + [f"python {number + k}" for k in range(placed.get(UNPLACED, 0))]


@given(st.lists(stacks(), min_size=1, max_size=6))
def test_runs_take_the_places_of_the_frames_that_executed_them(
    drawn: list[tuple[int, int, list[Run], set[int], Kind]],
) -> None:
    names: list[tuple[int, str]] = []
    python_names: list[tuple[int, str]] = []
    position, generated, info = [], [], []
    for s, (kernel, user, runs, compiled, kind) in enumerate(drawn):
        names += [(s, f"kernel {i}") for i in range(kernel)] + [(s, f"user {i}") for i in range(user)]
        position += list(range(kernel + user))
        generated += [False] * kernel + [i in compiled for i in range(user)]
        of_stack = [frame if k == count - 1 else WITH_NEXT for frame, count in runs for k in range(count)]
        python_names += [(s, f"python {k}") for k in range(len(of_stack))]
        info += [kind << 60 | frame << 48 | 7 for frame in of_stack]
    depth = np.array([sum(count for _, count in runs) for _, _, runs, _, _ in drawn], np.int64)
    frames = managed_frames(np.array([d[0] for d in drawn], np.int64), depth, np.array(info, np.uint64))
    stack = np.array([s for s, _ in names], np.int64)
    rows, of = merge(stack, np.array(position, np.int64), np.array(generated, bool), frames)
    merged = [(names + python_names)[row] for row in rows.tolist()]
    assert [s for s, _ in merged] == of.tolist()
    assert merged == [(s, name) for s, stack in enumerate(drawn) for name in plainly(*stack)]


def test_a_frame_with_inlined_functions_is_several() -> None:
    words = np.array([1 << 60 | 0 << 48, 1 << 60 | 1 << 48, 1 << 60 | 0 << 48], np.uint64)
    frames = managed_frames(np.zeros(2, np.int64), np.array([2, 1], np.int64), words).repeated(np.array([1, 2, 1]))
    rows, of = merge(np.array([0, 0, 0, 1]), np.array([0, 1, 2, 0]), np.zeros(4, bool), frames)
    assert rows.tolist() == [4, 5, 6, 2, 7]
    assert of.tolist() == [0, 0, 0, 0, 1]


def test_no_frames_are_no_frames() -> None:
    nothing = np.empty(0, np.int64)
    frames = managed_frames(np.zeros(2, np.int64), np.zeros(2, np.int64), np.empty(0, np.uint64))
    rows, of = merge(nothing, nothing, np.empty(0, bool), frames)
    assert len(rows) == len(of) == 0
