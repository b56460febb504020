"""Builds unwinding tables in a child process (child.py), which runs while there is work."""

import os

from collector.guest.confined_child import ConfinedChild
from collector.unwind.tables import table as unwind_table
from collector.unwind.tables.child import DONE, MAX_TABLE_BYTES
from collector.unwind.tables.table import UnwindTable

COMMAND = ["-m", "collector.unwind.tables.child"]
TIMEOUT_S = 600.0
"""Until a table is given up. The child's CPU time is limited as well, but on a busy host it gets little of it."""


class BuildError(RuntimeError):
    """The child built no table of this file; the message says why."""


class UnwindBuilder:
    """One thread at a time may call `build`, any thread `close`."""

    def __init__(self) -> None:
        self.child = ConfinedChild(COMMAND, TIMEOUT_S, "large files have no unwinding tables, so their stacks are cut")

    def build(self, key: str, descriptor: int) -> tuple[UnwindTable, bytes]:
        """Returns the table of an open ELF file, and its bytes as they are stored under `key`. Raises BuildError."""
        target = os.memfd_create("unwind-table", os.MFD_CLOEXEC)
        try:
            answer = self.child.run(key.encode(), [descriptor, target])
            if answer != DONE:
                raise BuildError(answer.decode("utf-8", "replace") or "it takes more memory or time than is allowed")
            size = os.fstat(target).st_size
            data = os.pread(target, min(size, MAX_TABLE_BYTES), 0)
            return unwind_table.from_bytes(data, key), data
        except (OSError, ValueError) as error:
            raise BuildError(f"the table cannot be read: {error}") from error
        finally:
            os.close(target)

    def close(self) -> None:
        """Ends the child, and a `build` that waits for it."""
        self.child.close()
