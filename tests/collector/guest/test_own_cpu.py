"""What the collector takes itself for."""

import subprocess
import sys
import time

from collector.guest.own_cpu import process_seconds

SPIN = "import time; t = time.process_time()\nwhile time.process_time() < t + 0.5: pass\nprint(flush=True); input()"


def test_the_time_of_children_counts_while_they_live_and_after_they_ended_and_once() -> None:
    before = process_seconds()
    with subprocess.Popen([sys.executable, "-c", SPIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        living = process_seconds() - before
        child.communicate(b"\n")
    ended = process_seconds() - before
    assert living > 0.5
    assert abs(living - ended) < 0.5  # so it counts neither twice nor only while it lives; others work here, too


def test_own_time_counts() -> None:
    before, until = process_seconds(), time.process_time() + 0.2
    while time.process_time() < until:
        pass
    assert process_seconds() - before >= 0.2
