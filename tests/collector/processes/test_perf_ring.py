"""The kernel's rings of records about processes."""

import select
import subprocess

import pytest

from collector.processes.perf_ring import Rings
from collector.processes.process_events import parse
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.ebpf


def test_a_mapped_file_wakes_who_waits_only_while_that_is_wanted() -> None:
    rings, ready = Rings(1 << 20), select.epoll()  # they are not half full soon
    rings.follow_cpus(lambda descriptor: ready.register(descriptor, select.EPOLLIN))
    for wanted in (True, False, True):
        rings.ring(wanted)
        rings.read()
        ready.poll(0)
        with subprocess.Popen(["true"]) as process:
            process.wait()
            assert bool(ready.poll(PATIENCE_S if wanted else 0.1)) == wanted
        assert process.pid in {record.pid for record in parse(rings.read()).records}
    rings.close()
    ready.close()
