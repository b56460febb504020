"""In which order unwinding tables are made."""

import queue
import time

import pytest

from collector.unwind.tables.table_queue import CODE_BYTES_PER_S, TableQueue

SMALL, LARGE = 4096, 2_000_000


def test_a_small_file_is_taken_before_larger_ones_that_came_earlier() -> None:
    wanted = TableQueue()
    for name in ("a", "b", "c"):
        wanted.put(name, LARGE)
    wanted.put("small", SMALL)
    assert [wanted.pop(1) for _ in range(4)] == ["small", "a", "b", "c"]
    with pytest.raises(queue.Empty):
        wanted.pop(0.001)


def test_a_large_file_does_not_wait_for_ever_for_new_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, now, small = TableQueue(), time.monotonic(), 0
    wanted.put("large", LARGE)
    taken: str | None = ""
    while taken != "large":
        small += 1
        with monkeypatch.context() as later:
            later.setattr(time, "monotonic", lambda at=now + small: at)
            wanted.put(f"small {small}", SMALL)
        taken = wanted.pop(1)
    assert small == pytest.approx(LARGE / CODE_BYTES_PER_S, abs=2)


def test_the_end_is_taken_first() -> None:
    wanted = TableQueue()
    wanted.put("a", SMALL)
    wanted.end()
    assert wanted.pop(1) is None
