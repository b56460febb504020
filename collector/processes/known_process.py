"""What is known of one process."""

from dataclasses import dataclass, field

from collector.processes.mapped_history import MappedHistory
from collector.processes.mapped_ranges import MappedRange
from collector.processes.process import Process

REFRESH_FIRST_S, _REFRESH_LAST_S = 4.0, 64.0
_START_TOLERANCE = 3  # ticks


@dataclass
class KnownProcess:
    """`ranges` is what the process has mapped now. `used` and `refreshed` are times of time.monotonic."""

    process: Process
    history: MappedHistory
    used: float  # when it was last looked up
    refreshed: float  # when /proc was last read
    wait_s: float = field(default_factory=lambda: REFRESH_FIRST_S)  # from then until it may be read again
    as_of_monotonic_ns: int = 0  # `history` includes every event up to this time
    from_events: bool = False  # `process` comes from events; /proc has not confirmed it yet
    ended: bool = False
    checked: float = 0.0  # when it was last known to exist
    user: int | None = None  # once it was needed
    parent: int = 0  # the process it was forked from, while what the parent has mapped is not known
    forked_monotonic_ns: int = 0

    @property
    def ranges(self) -> tuple[MappedRange, ...]:
        return self.history.ranges

    def read_soon(self) -> None:
        """The last reading found something new."""
        self.wait_s = REFRESH_FIRST_S

    def read_later(self) -> None:
        """The last reading found nothing new."""
        self.wait_s = min(2 * self.wait_s, _REFRESH_LAST_S)

    def is_same(self, process: Process) -> bool:
        """Whether this is that process. The start time may differ a little where it comes from an event."""
        tolerance = _START_TOLERANCE if self.from_events else 0
        return abs(self.process.start_ticks - process.start_ticks) <= tolerance
