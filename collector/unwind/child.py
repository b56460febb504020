"""Builds unwinding tables in a process of its own, with limits on memory and time, and without capabilities,
network or changes of files, so that no file can hurt the host.

Standard input is a SOCK_SEQPACKET socket. A job is the key of the table with two descriptors: the ELF file, and the
file to write the table into. The answer is a zero byte, or the reason why there is no table. The process ends after
IDLE_S seconds without a job.
"""

import os
import resource
import socket
import sys

from collector.elf.error import ElfError
from collector.guest.confine import confine
from collector.unwind import table as unwind_table

MEMORY_BYTES = 1 << 30
JOB_CPU_SECONDS = 30
MAX_TABLE_BYTES = 64 << 20
"""A table of 500 MB of code has 40 MB."""

IDLE_S = 10.0
MAX_MESSAGE_BYTES = 4096
DONE = b"\0"
NOT_CONFINED = 3
"""The exit code where the kernel has no seccomp filters: the process reads no file then."""

NICE = 5  # a third of the CPU share of others: on a busy host as well a table takes a second or two


def main() -> int:
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        confine()
    except OSError:
        return NOT_CONFINED
    jobs = socket.socket(fileno=sys.stdin.fileno())
    jobs.settimeout(IDLE_S)
    while True:
        try:
            key, descriptors, _, _ = socket.recv_fds(jobs, MAX_MESSAGE_BYTES, 2)
        except TimeoutError:
            return 0
        if len(descriptors) != 2:  # the collector has ended
            return 0
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + JOB_CPU_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        answer = build(key.decode(), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        jobs.send(answer.encode("utf-8", "replace")[:MAX_MESSAGE_BYTES] or DONE)


def build(key: str, source: int, target: int) -> str:
    """Writes the table of an open ELF file into another file; returns "", or the reason why it cannot."""
    try:
        data = unwind_table.to_bytes(unwind_table.build(source), key)
        if len(data) > MAX_TABLE_BYTES:
            return f"the table has {len(data)} bytes: at most {MAX_TABLE_BYTES} are stored"
        with open(target, "wb", closefd=False) as out:
            out.write(data)
    except (ElfError, OSError) as error:
        return str(error) or type(error).__name__
    except MemoryError:
        return f"the table takes more than {MEMORY_BYTES} bytes of memory"
    except Exception as error:  # an unforeseen file must not cost the files after it their tables
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
