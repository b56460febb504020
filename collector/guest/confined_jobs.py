"""The side of the child: jobs with what strangers wrote, done with limits on memory and time, and without capabilities,
network or changes of files, so that no file can hurt the host. confined_child.py is the side of the collector.

Standard input is a SOCK_SEQPACKET socket. A job is a message with descriptors, the answer is a message. Before the
first, the child may say READY.
"""

import os
import resource
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass

from collector.guest.confine import confine

MAX_MESSAGE_BYTES = 8192
MAX_DESCRIPTORS = 4
READY = b"ready"
NOT_CONFINED = 3
"""The exit code where the kernel has no seccomp filters: the process reads no file then."""


@dataclass(frozen=True)
class ChildLimits:
    """What a child may take."""

    memory_bytes: int
    file_bytes: int  # of each file that it writes
    job_cpu_seconds: int
    idle_s: float  # the child ends when no job came for so long
    nice: int = 0


def serve(answer: Callable[[bytes, list[int]], bytes], limits: ChildLimits, says_ready: bool = False) -> int:
    """Confines this process, and answers jobs until the collector ends or sends none. Returns the exit code.

    `answer` gets the message and the descriptors of a job, which are closed behind it. What it raises ends the process.
    """
    os.nice(limits.nice)
    resource.setrlimit(resource.RLIMIT_DATA, (limits.memory_bytes, limits.memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_bytes, limits.file_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        confine()
    except OSError:
        return NOT_CONFINED
    # The other one stays open until the process has ended: so its end and its exit code are seen together.
    jobs = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    jobs.settimeout(limits.idle_s)
    if says_ready:  # to confined_child.py
        jobs.send(READY)
    while True:
        try:
            job, descriptors, _, _ = socket.recv_fds(jobs, MAX_MESSAGE_BYTES, MAX_DESCRIPTORS)
        except TimeoutError:
            return 0
        if not descriptors:  # the collector has ended
            return 0
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + limits.job_cpu_seconds
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        reply = answer(job, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        jobs.send(reply)
