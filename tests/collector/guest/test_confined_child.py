"""Where no child can be had for a job, that is told apart from a child that did not survive one."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from collector.guest import confined_child
from collector.guest.confined_child import ConfinedChild, NoChildError
from tests.waiting import PATIENCE_S, wait_until

SERVING = """
import sys
from collector.guest import confined_jobs
{}
limits = confined_jobs.ChildLimits(1 << 30, 1 << 20, 60, 600.0)
sys.exit(confined_jobs.serve(lambda job, descriptors: job.upper(), limits, says_ready=True))
"""


@pytest.fixture
def child() -> Iterator[ConfinedChild]:
    made = ConfinedChild(["-c", SERVING.format("")], PATIENCE_S, "nothing is read")
    yield made
    made.close()


def do(child: ConfinedChild) -> bytes:
    with open(os.devnull, "rb") as file:
        return child.run(b"job", [file.fileno()])


def test_while_many_children_wait_for_a_disk_no_job_is_begun(
    child: ConfinedChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined_child, "MAX_STUCK", 1)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as waiting:
        child._stuck.append(waiting)
        with pytest.raises(NoChildError):
            do(child)
        assert child.process is None
    assert do(child) == b"JOB"


def test_where_no_thread_can_be_started_there_is_no_child_until_one_can(
    child: ConfinedChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(NoChildError):
            do(child)
    assert do(child) == b"JOB"


def test_a_child_that_cannot_be_confined_does_no_job(child: ConfinedChild) -> None:
    child.command = ["-c", SERVING.format("def confine(): raise OSError\nconfined_jobs.confine = confine")]
    for _ in range(2):
        with pytest.raises(NoChildError):
            do(child)


def test_a_start_that_takes_long_goes_on_and_no_job_is_begun(child: ConfinedChild) -> None:
    reading, writing = os.pipe()
    child.command = ["-c", SERVING.format(f"open('/proc/{os.getpid()}/fd/{reading}').read()")]
    child.timeout_s = 0.1
    with pytest.raises(NoChildError):
        do(child)
    started = child.process
    with pytest.raises(NoChildError):
        do(child)
    child.timeout_s = PATIENCE_S
    os.close(writing)
    wait_until(lambda: succeeds(child))
    os.close(reading)
    assert child.process is started


def succeeds(child: ConfinedChild) -> bool:
    try:
        return do(child) == b"JOB"
    except NoChildError:
        return False
