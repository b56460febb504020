"""Labels of samples that were taken while their process ran another program, or was another process."""

import os
import sys
import time

import pytest

from collector.labels import thread_labels
from collector.labels.thread_labels import ThreadLabels
from collector.processes.process import read_process, start_monotonic_ns
from collector.processes.process_events import Executed, Forked, Mapped
from tests.collector.labels.threads import labels, python

GONE = 2**22 + 1


def program(known: ThreadLabels, pid: int, monotonic_ns: int, name: str) -> None:
    known.event(pid, Executed(monotonic_ns, name))
    known.event(pid, Mapped(monotonic_ns + 1, 0, 4096, 0, b"", 0, 0, 0, f"/bin/{name}"))


def at(known: ThreadLabels, pid: int, monotonic_ns: int, latest: str = "latest", tid: int = 0) -> tuple[str, str, str]:
    found = dict(known.labels(pid, tid or pid, latest, monotonic_ns=monotonic_ns) or ())
    return found.get("service", ""), found.get("comm", ""), found.get("thread_name", "")


def test_programs_that_were_never_read_have_the_labels_of_their_time() -> None:
    known = ThreadLabels("h")
    program(known, GONE, 10, "one")
    program(known, GONE, 20, "two")
    program(known, GONE, 30, "three")
    assert at(known, GONE, 35) == ("three", "three", "latest")
    assert at(known, GONE, 15) == ("one", "one", "one")
    assert at(known, GONE, 20) == ("two", "two", "two")
    assert at(known, GONE, 15, tid=7) == ("one", "one", "latest")
    assert known.changes(GONE).tolist() == [20, 30]
    program(known, GONE, 40, "four")
    assert [at(known, GONE, time)[0] for time in (15, 25, 39, 40)] == ["one", "two", "three", "four"]


def test_another_process_with_the_same_id_has_its_own_labels() -> None:
    known = ThreadLabels("h")
    program(known, GONE, 10, "one")
    assert at(known, GONE, 15)[0] == "one"
    known.event(GONE, Forked(20, GONE + 1))
    program(known, GONE, 30, "two")
    assert [at(known, GONE, time)[0] for time in (19, 30)] == ["one", "two"]


def test_what_was_read_of_a_program_is_not_said_of_the_next_one_nor_of_the_one_before() -> None:
    with python(OTEL_SERVICE_NAME="shell") as process:
        known = ThreadLabels("h")
        began, path = time.monotonic_ns(), os.path.realpath(sys.executable)
        program(known, process.pid, began - 10**9, "before")
        known.event(process.pid, Executed(began, "python"))
        known.event(process.pid, Mapped(began, 0, 4096, 0, b"", 0, 0, 0, path))
        known.notice(process)
        ended = time.monotonic_ns()
        program(known, process.pid, ended, "after")
        times = (began - 1, began, ended - 1, ended)
        assert [at(known, process.pid, time)[0] for time in times] == ["before", "shell", "shell", "after"]
        known.notice(process)  # it is another program that has the same variables
        assert [at(known, process.pid, time)[0] for time in times] == ["before", "shell", "shell", "shell"]


def test_an_event_that_comes_after_its_program_was_read_says_when_that_began() -> None:
    with python(OTEL_SERVICE_NAME="second") as process:
        known = ThreadLabels("h")
        began = time.monotonic_ns()
        known.notice(process)
        first = known._known[process.pid]  # as if it had been read while it ran another program
        first.process = process._replace(program=(1, 2, 3))
        first.facts.environment["OTEL_SERVICE_NAME"] = "first"
        executed = time.monotonic_ns()
        known.notice(process)
        assert [at(known, process.pid, t)[0] for t in (began, time.monotonic_ns())] == ["first", "second"]
        known.event(process.pid, Executed(executed, "python"))
        assert [at(known, process.pid, t)[0] for t in (executed - 1, executed)] == ["first", "second"]
        assert labels(known, process)["service"] == "second"
        assert read_process(process.pid) == process


def test_another_process_that_no_event_told_of_begins_when_proc_says() -> None:
    with python(OTEL_SERVICE_NAME="second") as process:
        known = ThreadLabels("h")
        began = start_monotonic_ns(process.start_ticks)
        time.sleep(0.3)
        known.notice(process)
        first = known._known[process.pid]  # as if it had been read of another process that had the ID before
        first.process = process._replace(start_ticks=process.start_ticks - 100)
        first.facts.environment["OTEL_SERVICE_NAME"] = "first"
        time.sleep(0.1)
        known.look(process)
        assert [at(known, process.pid, t)[0] for t in (began - 10**6, began + 10**6)] == ["first", "second"]
        known.event(process.pid, Executed(began + 10**7, "python"))
        assert [at(known, process.pid, began + t)[0] for t in (10**7 - 1, 10**7)] == ["first", "second"]


def test_a_process_that_was_looked_at_keeps_its_labels_when_it_has_ended() -> None:
    known = ThreadLabels("h")
    with python(OTEL_SERVICE_NAME="looked") as process:
        known.event(process.pid, Executed(1, "before"))
        known.event(process.pid, Executed(time.monotonic_ns(), "python"))
        known.look(process)
    for _ in range(3):  # in each of the windows that are built late
        assert at(known, process.pid, time.monotonic_ns())[0] == "looked"
        assert at(known, process.pid, 1)[0] == "before"
        known.forget([])
    known.forget([process.pid])
    assert at(known, process.pid, 1)[0] == "latest"


def test_what_events_said_of_a_process_that_is_gone_counts_in_every_window() -> None:
    known = ThreadLabels("h")
    program(known, GONE, 10, "one")
    for _ in range(3):
        assert at(known, GONE, 15)[:2] == ("one", "one")
        known.forget([])


def test_of_too_many_programs_the_oldest_have_no_labels_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_labels, "MAX_PROGRAMS", 5)
    monkeypatch.setattr(thread_labels, "MAX_EARLIER", 8)
    known = ThreadLabels("h")
    for pid in (GONE, GONE + 1):
        at(known, pid, 0)
        for i in range(1, 30):
            program(known, pid, 10 * i, f"p{i}")
            if i % 4 == 0 or pid > GONE:
                known.changes(pid)
        found = [at(known, pid, 10 * i, "")[0] for i in range(1, 30)]
        assert all(name in ("", f"p{i}") for i, name in enumerate(found, 1))
        assert found[-2:] == ["p28", "p29"]
    assert sum(map(len, known._earlier.values())) <= 8
    known.forget([GONE, GONE + 1])
    assert not known._earlier
