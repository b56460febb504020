"""Reads pages of other processes in a process of its own (collector/guest/confined_jobs.py): nothing ends a thread that
waits for a page, and the collector could not end with it.

A job has two descriptors: /proc/PID/mem, and a file with the areas (AREA each). The answer overwrites the areas in that
file: the length of each area, -1 if it cannot be read completely (LENGTH each), then their bytes. Both messages,
the job and the answer, say how many bytes the file has (SIZE).
"""

import os
import struct
import sys

from collector.guest.confined_jobs import ChildLimits, serve

AREA, LENGTH, SIZE = struct.Struct("<QQ"), struct.Struct("<q"), struct.Struct("<I")
MAX_BYTES = 4 << 20
"""The most bytes of all areas of a job."""
_LIMITS = ChildLimits(memory_bytes=64 << 20, file_bytes=2 * MAX_BYTES, job_cpu_seconds=5, idle_s=600.0)


def main() -> int:
    return serve(answer, _LIMITS, says_ready=True)


def answer(job: bytes, descriptors: list[int]) -> bytes:
    memory, target = descriptors
    (size,) = SIZE.unpack(job)
    areas = [_read(memory, *area) for area in AREA.iter_unpack(os.pread(target, size, 0))]
    lengths = b"".join(LENGTH.pack(-1 if area is None else len(area)) for area in areas)
    return SIZE.pack(os.pwrite(target, lengths + b"".join(filter(None, areas)), 0))


def _read(memory: int, address: int, size: int) -> bytes | None:
    try:
        data = os.pread(memory, size, address) if size else b""
    except (OSError, OverflowError):
        return None
    return data if len(data) == size else None


if __name__ == "__main__":
    sys.exit(main())
