"""Lets a thread that works little run as soon as it has something to do, also while all CPUs are busy: sched(7).

A thread that wakes on a busy CPU otherwise waits until another one has used its slice, which is some milliseconds. The
thread that watches processes would learn of a program that lives for 50 ms when a good part of its life is over. With a
shorter slice it runs at once (sched_setattr(2), since Linux 6.12). It does not get more CPU than with a longer one, and
needs no privilege.
"""

import ctypes
import os
import platform
import struct
import sys

SLICE_NS = 500_000  # what the watching thread does for a new process takes about as long
HAND_OVER_S = 0.001

_SYSCALL = {"x86_64": 314, "aarch64": 274}
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")  # struct sched_attr: size, policy, flags, nice, priority, slice, two zeros
_RESET_ON_FORK = 1


def hand_over_soon() -> None:
    """Lets Python's threads wait for each other for a millisecond only, where one calculates; by default 5 ms."""
    sys.setswitchinterval(HAND_OVER_S)


def run_at_once() -> None:
    """Gives the calling thread a short slice, but not its children. Does nothing where somebody gave this process a
    scheduling policy, or the kernel refuses."""
    number = _SYSCALL.get(platform.machine())
    if number is not None and os.sched_getscheduler(0) == os.SCHED_OTHER:
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        values = (_ATTRIBUTES.size, os.SCHED_OTHER, _RESET_ON_FORK, nice, 0, SLICE_NS, 0, 0)
        attributes = ctypes.create_string_buffer(_ATTRIBUTES.pack(*values), _ATTRIBUTES.size)
        ctypes.CDLL(None).syscall(number, 0, attributes, 0)
