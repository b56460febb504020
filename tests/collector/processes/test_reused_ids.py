"""A process ended while it was read, and another user's process got its ID."""

import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from collector.labels.process_context import ContextReader
from collector.labels.thread_labels import ThreadLabels
from collector.processes.mapped_files import FileCache
from collector.processes.mappings import ProcessMappings
from collector.processes.process import Process, is_another, read_process, start_monotonic_ns
from collector.processes.process_events import parse
from icestream.tracing import process_context
from tests.collector.processes import kernel_records as kernel


@pytest.fixture
def other() -> Iterator[Process]:
    """The process that has the ID."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as running:
        assert running.stdin
        assert running.stdout
        running.stdin.write(b"executed\n")
        assert running.stdout.readline() == b"executed\n"
        process = read_process(running.pid)
        assert process is not None
        yield process
        running.kill()


@pytest.fixture
def ended(other: Process) -> Process:
    """The one that had it before, as it was read last."""
    return other._replace(start_ticks=other.start_ticks - 100)


def test_a_process_is_another_one_if_it_began_later(other: Process, ended: Process) -> None:
    assert is_another(ended)
    assert not is_another(other)
    assert not is_another(other._replace(pid=2**22 + 1))  # nobody has it


def test_what_the_other_one_maps_is_not_taken_for_what_the_ended_one_mapped(other: Process, ended: Process) -> None:
    files = FileCache()
    known = ProcessMappings(files)
    assert known._learn(ended, None) is None
    assert known.ranges(other.pid) == []
    assert known._learn(other, None) is not None
    assert known.ranges(other.pid)
    known.close()
    files.close()


def test_the_other_one_does_not_name_the_ended_one(other: Process, ended: Process) -> None:
    labels = ThreadLabels("host")
    labels.notice(ended)
    assert other.pid not in labels._known
    labels.notice(other)
    assert other.pid in labels._known


def test_what_events_say_of_the_ended_one_counts_also_when_they_come_after_the_other_one_was_read(
    other: Process,
) -> None:
    labels, files = ThreadLabels("host"), FileCache()
    known = ProcessMappings(files, [labels])
    began = start_monotonic_ns(other.start_ticks)
    records = (
        kernel.fork(began - 3 * 10**9, 1, other.pid),
        kernel.execute(began - 2 * 10**9, other.pid, "ended"),
        kernel.exit_record(began - 10**9, other.pid),
        kernel.fork(began, 1, other.pid),
        kernel.execute(began + 10**7, other.pid, "cat"),
    )
    assert known.notice(other.pid) == other
    labels.look(other)
    known.apply(parse(list(records)))
    for monotonic_ns, name in (began - 15 * 10**8, "ended"), (time.monotonic_ns(), "cat"):
        found = labels.labels(other.pid, other.pid, "cat", monotonic_ns=monotonic_ns)
        assert found
        assert dict(found)["thread_name"] == name
    known.close()
    files.close()


def test_a_process_context_is_not_read_from_the_other_one() -> None:
    own = read_process(os.getpid())
    assert own is not None
    published = process_context.publish("forged", False)
    assert published is not None
    for process, service in ((own._replace(start_ticks=own.start_ticks - 100), None), (own, "forged")):
        reader = ContextReader(own.pid, is_gone=lambda process=process: is_another(process))
        reader.look()
        assert reader.attributes.get("service.name") == service
    published.close()
