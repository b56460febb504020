"""When the unwinding table of a file may be requested."""

import time

import pytest

from collector.unwind.tables.attempts import AGAIN_S, LOOK_S, MOST_AT_ONCE, Attempts


def test_a_file_is_not_requested_while_it_is_loaded_or_put_off() -> None:
    attempts = Attempts()
    assert attempts.may_begin("a")
    attempts.begin("a")
    assert attempts.loading("a")
    assert not attempts.may_begin("a")
    attempts.put_off("a")
    assert not attempts.loading("a")
    assert not attempts.may_begin("a")
    attempts.succeeded("a")
    assert attempts.may_begin("a")


def test_files_that_were_put_off_are_due_after_a_minute_and_not_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    attempts = Attempts()
    files = [f"file{i}" for i in range(MOST_AT_ONCE + 3)]
    for file in files:
        attempts.put_off(file)
    attempts.begin(files[0])
    assert attempts.due() == []
    now += AGAIN_S
    assert attempts.due() == files[1 : MOST_AT_ONCE + 1]
    assert attempts.due() == []
    now += LOOK_S
    assert attempts.due() == files[MOST_AT_ONCE + 1 :]
    assert not attempts.may_begin(files[0])
