"""A flood of activity by an unprivileged user, who wants others to lose theirs."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.activity.activity_socket import ActivityReceiver
from collector.activity.intervals import ActivityIntervals
from collector.activity.quotas import PROCESS_SHARE, Quotas, user_share
from tests.collector.activity.flooding import ATTACKER, OTHER, datagram, flooding, open_folder, send
from tests.waiting import wait_until

pytestmark = pytest.mark.ebpf


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as path:
        yield path


@pytest.fixture
def quotas() -> Quotas:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    return Quotas()


def test_a_flood_neither_takes_others_activity_nor_the_collectors_cpu(
    folder: Path, quotas: Quotas, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = ActivityReceiver(folder / "activity.sock", room=400_000, quotas=quotas)
    with flooding(receiver.path, ATTACKER) as attackers, flooding(receiver.path, OTHER) as others:
        flooders = {(pid, user) for user, pids in ((ATTACKER, attackers), (OTHER, others)) for pid in pids}
        wait_until(lambda: {(cut.pid, cut.uid) for cut in quotas.by_process()} >= flooders)  # their bursts are over
        began, cpu_before = time.monotonic(), receiver.cpu_seconds()
        for _ in range(30):
            assert send(receiver.path, datagram(3))
            time.sleep(0.05)
        took = time.monotonic() - began
        cpu_seconds = receiver.cpu_seconds() - cpu_before
        intervals = _taken(receiver)
    receiver.close()
    assert int((intervals.pid == os.getpid()).sum()) == 3 * 30
    of_floods = [record for record in caplog.records if record.name == "collector.activity.flood"]
    named = {record.args[0] for record in of_floods if isinstance(record.args, tuple)}
    assert named
    assert named <= {*attackers, *others}
    assert quotas.cut() > 1000
    assert cpu_seconds / took < 2 * (2 * user_share(os.cpu_count() or 1) + PROCESS_SHARE)


def _taken(receiver: ActivityReceiver) -> ActivityIntervals:
    """Takes everything that was sent: the socket is a queue, so what is sent last is received last."""
    malformed = receiver.counts.malformed
    assert send(receiver.path, b"no datagram")
    wait_until(lambda: receiver.counts.malformed > malformed)
    return receiver.drain()
