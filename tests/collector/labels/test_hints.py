"""The labels of processes of which only events are known: they have ended, or are read later."""

import os
import sys
import time

import pytest

from collector.labels.deferred import DEFER_S, Deferred
from collector.labels.thread_labels import ThreadLabels
from tests.collector.labels.threads import CONTAINER, EXECUTABLE, Runtime, in_group, labels, of, python


def test_events_name_a_process_that_was_gone_before_it_could_be_read() -> None:
    known, pid = ThreadLabels("h"), 2**22 + 1
    assert of(known, pid, pid, "sh")["service"] == "sh"
    known.hint(pid, executable_path="/lib/mapped/some/time.so")
    known.hint(pid, parent=2**22 + 2)
    known.hint(pid, executable_path="/lib/mapped/after/the/fork.so")
    assert of(known, pid, pid, "sh")["service"] == "sh"
    known.hint(pid, comm="cc1")
    known.hint(pid, executable_path="/usr/lib/gcc/cc1plus")
    known.hint(pid, executable_path="/lib/ld.so")
    assert of(known, pid, pid, "worker") == {
        "comm": "cc1", "executable": "cc1plus", "host": "h", "service": "cc1plus", "thread_name": "worker",
    }  # fmt: skip
    known.hint(pid, comm="ld")
    assert of(known, pid, pid, "ld")["service"] == "ld", "another program"


def test_a_process_that_was_gone_is_in_the_container_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    in_group(monkeypatch, f"/system.slice/docker-{CONTAINER}.scope")
    known, pid = ThreadLabels("h", containers=Runtime()), 2**22 + 1
    with python(OTEL_SERVICE_NAME="parent") as process:
        known.notice(process)
        known.hint(pid, parent=process.pid)
        known.hint(pid, comm="gzip", executable_path="/bin/gzip")
        actual = of(known, pid, pid, "gzip")
    assert (actual["service"], actual["container_id"], actual["executable"]) == ("web", CONTAINER, "gzip")


def test_a_program_executed_after_a_process_was_read_is_the_one_that_counts() -> None:
    with python(OTEL_SERVICE_NAME="shell") as process:
        known = ThreadLabels("h")
        known.hint(process.pid, comm="python", executable_path=os.path.realpath(sys.executable))
        known.notice(process)
        assert labels(known, process)["service"] == "shell"
        known.hint(process.pid, comm="python")
        known.hint(process.pid, executable_path=os.path.realpath(sys.executable))
        assert labels(known, process)["service"] == "shell", "told late of the program that was read"
        known.hint(process.pid, comm="cc1", executable_path="/usr/lib/cc1")
        assert labels(known, process)["service"] == "cc1"
        known.notice(process)
        assert labels(known, process)["service"] == "shell", "read again, while it lives"


def test_memory_is_bounded_however_many_events_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.labels.thread_labels.MAX_HINTS", 10)
    known = ThreadLabels("h")
    for pid in range(100):
        known.hint(pid, comm="x")
    assert len(known._hints) == 10
    known.forget(range(100))
    assert not known._hints
    assert known.labels(2**22 + 1, 5, "gone")
    monkeypatch.setattr("collector.labels.thread_labels._KEEP_S", -1.0)
    known.forget([])
    assert not known._known


def test_details_of_a_new_process_can_be_read_later_and_its_labels_say_so() -> None:
    known = ThreadLabels("host-1")
    with python() as process:
        assert not known.defer(process.pid)  # no event spoke of it, so it is not new
        known.hint(process.pid, comm="early")
        known.hint(process.pid, executable_path="/usr/bin/early")
        assert known.defer(process.pid)
        found = labels(known, process)
        assert (found["comm"], found["executable"], found["details"]) == ("early", "early", "deferred")
        known.forget([])  # the next window begins
        assert known.defer(process.pid)
        assert labels(known, process)["executable"] == "early"
        known.forget([])
        known._deferred._clock = lambda: time.monotonic() + DEFER_S
        assert not known.defer(process.pid)
        known.notice(process)
        found = labels(known, process)
        assert found["executable"] == EXECUTABLE
        assert "details" not in found


def test_a_process_that_is_sampled_rarely_does_not_stay_deferred() -> None:
    now = 0.0
    known = ThreadLabels("host-1")
    known._deferred = Deferred(lambda: now)
    with python() as process:
        known.hint(process.pid, comm="early")
        assert known.defer(process.pid)
        assert labels(known, process)["details"] == "deferred"
        known.forget([])
        now = 90.0
        known.forget([])
        assert not known.defer(process.pid)
        known.notice(process)
        assert "details" not in labels(known, process)


def test_processes_whose_details_are_deferred_are_forgotten_after_a_minute_and_where_there_are_too_many() -> None:
    now = 0.0
    deferred = Deferred(lambda: now)
    assert all(deferred.add(pid) for pid in range(10_000))
    assert sum(pid in deferred for pid in range(10_000)) == 8192
    now = 61.0
    assert deferred.add(20_000)
    assert len(deferred.expire()) == 8191
    assert [pid for pid in range(30_000) if pid in deferred] == [20_000]
