"""The slice of a thread, in a process of its own, as the kernel reports it: sched_getattr(2)."""

import platform
import subprocess
import sys

import pytest

from collector.guest.capabilities import kernel_version
from collector.guest.priority import SLICE_NS
from tests.waiting import PATIENCE_S

SCRIPT = """
import ctypes, os, struct, subprocess, sys, threading
from collector.guest.priority import run_at_once

def scheduling(pid):
    attributes = ctypes.create_string_buffer(48)
    assert ctypes.CDLL(None).syscall({number}, pid, attributes, 48, 0) == 0
    _, policy, _, nice, _, slice_ns = struct.unpack_from("=IIQiIQ", attributes.raw)
    return policy, nice, slice_ns

def watch():
    run_at_once()
    told.append(scheduling(0))
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        told.append(scheduling(child.pid))
        child.communicate()

told = []
{before}
thread = threading.Thread(target=watch)
thread.start()
thread.join()
print(told == [({policy}, {nice}, {slice_ns}), ({policy}, {nice}, scheduling(0)[2])], told, scheduling(0))
"""
pytestmark = pytest.mark.skipif(kernel_version() < (6, 12), reason="before Linux 6.12 a thread has no slice of its own")
OTHER, BATCH = 0, 3
NUMBER = 315 if platform.machine() == "x86_64" else 275  # of sched_getattr


@pytest.mark.parametrize("nice", [0, 5])
def test_only_the_thread_that_asks_has_a_short_slice(nice: int) -> None:
    assert told(f"os.nice({nice})", OTHER, nice, str(SLICE_NS)).startswith("True")


def test_a_policy_that_somebody_gave_stays() -> None:
    before = "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))"
    assert told(before, BATCH, 0, "scheduling(0)[2]").startswith("True")


def told(before: str, policy: int, nice: int, slice_ns: str) -> str:
    script = SCRIPT.format(number=NUMBER, before=before, policy=policy, nice=nice, slice_ns=slice_ns)
    run = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE_S
    )
    return run.stdout
