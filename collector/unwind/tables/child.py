"""Builds unwinding tables in a process of its own (collector/guest/confined_jobs.py).

A job is the key of the table with two descriptors: the ELF file, and the file to write the table into. The answer is a
zero byte, or the reason why there is no table.
"""

import sys

from collector.elf.error import ElfError
from collector.guest.confined_jobs import MAX_MESSAGE_BYTES, ChildLimits, serve
from collector.unwind.tables import table as unwind_table

MEMORY_BYTES = 1 << 30
JOB_CPU_SECONDS = 30
MAX_TABLE_BYTES = 64 << 20
"""A table of 500 MB of code has 40 MB."""

IDLE_S = 10.0
DONE = b"\0"

NICE = 5  # a third of the CPU share of others: on a busy host as well a table takes a second or two


def main() -> int:
    return serve(_answer, ChildLimits(MEMORY_BYTES, MAX_TABLE_BYTES, JOB_CPU_SECONDS, IDLE_S, NICE), says_ready=True)


def _answer(job: bytes, descriptors: list[int]) -> bytes:
    source, target = descriptors
    return build(job.decode(), source, target).encode("utf-8", "replace")[:MAX_MESSAGE_BYTES] or DONE


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
