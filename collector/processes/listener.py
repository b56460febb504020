"""The interface of listeners, which follow the processes of this host."""

from collector.processes.mapped_ranges import MappedRange
from collector.processes.process import Process
from collector.processes.process_events import Event


class ProcessListener:
    """Is called for events of processes. A listener overrides the methods of the events that it needs.

    The thread that learns of an event calls them, in order. They must be quick, because other threads wait meanwhile.
    """

    def event(self, pid: int, event: Event) -> None:
        """The kernel reported an event of the process."""

    def mapped(self, process: Process, ranges: list[MappedRange]) -> None:
        """The executable mappings of the process, sorted by address, were learned or changed."""

    def ended(self, pid: int) -> None:
        """The process ended, or is forgotten."""

    def sampled(self, pid: int) -> None:
        """A thread of the process was sampled for the first time. The process may end soon."""
