"""Reads perf maps in a process of its own (collector/guest/confined_jobs.py).

A job (perfmap_messages.py) has two descriptors: the perf map, and the file to write the answer into. The message that
answers says how many bytes that is: none where the perf map cannot be read.
"""

import os
import struct
import sys

from collector.guest.confined_jobs import ChildLimits, serve
from collector.processes.perfmap_lines import read_lines, read_names
from collector.processes.perfmap_messages import MAX_ANSWER_BYTES, LinesJob, decode_job, encode_lines, encode_names

SIZE = struct.Struct("<I")
MEMORY_BYTES = 256 << 20
JOB_CPU_SECONDS = 5
"""A job takes about 20 ms."""
IDLE_S = 600.0
"""To start takes as much CPU as thousands of jobs, so the process does not end between two of them."""


def main() -> int:
    return serve(answer, ChildLimits(MEMORY_BYTES, MAX_ANSWER_BYTES, JOB_CPU_SECONDS, IDLE_S), says_ready=True)


def answer(job: bytes, descriptors: list[int]) -> bytes:
    """Does a job. Raises OSError where its answer cannot be written."""
    perf_map, target = descriptors
    wanted = decode_job(job)
    try:
        if isinstance(wanted, LinesJob):
            data = encode_lines(read_lines(perf_map, *wanted))
        else:
            data = encode_names(read_names(perf_map, *wanted))
    except OSError:
        return SIZE.pack(0)
    return SIZE.pack(os.pwrite(target, data, 0))


if __name__ == "__main__":
    sys.exit(main())
