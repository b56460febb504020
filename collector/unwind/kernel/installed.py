"""What the kernel's maps say about a process."""

from dataclasses import dataclass

from collector.bpf.program import Image
from collector.processes.mappings import MappedRange
from collector.processes.process import Process


@dataclass
class Installed:
    """A process with its mappings, which lie in the map of mappings from `first` on."""

    process: Process
    ranges: list[MappedRange]
    first: int
    file_keys: set[str]
    image: Image
    since_monotonic_ns: int  # what is here is not older
    user: int | None = None  # of the process, once it was needed

    @property
    def is_complete(self) -> bool:
        """False: when this was read, the process had begun to execute a program and had mapped files, but the kernel
        did not say yet where the code starts."""
        return self.image.start_code != 0
