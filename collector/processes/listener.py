"""Who hears of the processes of this host."""

from collector.processes.mapped_ranges import MappedRange
from collector.processes.process import Process
from collector.processes.process_events import Event


class ProcessListener:
    """Hears of processes. A listener overrides the methods for what it wants to hear.

    The thread that learned the news calls them, in order and while other threads wait: they must be quick.
    """

    def event(self, pid: int, event: Event) -> None:
        """The kernel reported an event of the process."""

    def mapped(self, process: Process, ranges: list[MappedRange]) -> None:
        """The executable mappings of the process, sorted by address, were learned or changed."""

    def ended(self, pid: int) -> None:
        """The process ended, or is forgotten."""

    def sampled(self, pid: int) -> None:
        """A thread of the process was sampled for the first time. The process may end soon."""
