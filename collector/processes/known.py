"""What is known of one process."""

import os
from dataclasses import dataclass, field

from collector.processes.images import Image
from collector.processes.process import Process
from collector.processes.rows import Row

REFRESH_FIRST_S, _REFRESH_LAST_S = 4.0, 64.0
_START_TOLERANCE = 3  # ticks


@dataclass
class Known:
    """`rows` is what it has mapped now."""

    process: Process
    images: tuple[Image, ...]  # the newest first; () where nothing is known yet
    used: float
    refreshed: float
    wait: float = field(default_factory=lambda: REFRESH_FIRST_S)  # from then until it may be read again
    as_of_ns: int = 0  # what happened before is in the images
    told: bool = False  # `process` is what events tell, and not yet what /proc says
    ended: bool = False
    parent: int = 0  # whose images it had when it was forked at forked_ns, where those are not known
    forked_ns: int = 0

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.images[0].rows if self.images else ()

    def read_soon(self) -> None:
        """What was read last was new."""
        self.wait = REFRESH_FIRST_S

    def read_later(self) -> None:
        """What was read last was known."""
        self.wait = min(2 * self.wait, _REFRESH_LAST_S)

    def is_same(self, process: Process) -> bool:
        """Whether it is that one. Where only events told when it began, give or take a little."""
        return abs(self.process.start_ticks - process.start_ticks) <= (_START_TOLERANCE if self.told else 0)

    def has_threads(self) -> bool:
        """Whether a process whose first thread has ended lives on in others."""
        try:
            return len(os.listdir(f"/proc/{self.process.pid}/task")) > 1
        except OSError:
            return False
