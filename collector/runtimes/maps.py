"""Where the eBPF program finds what it needs to know about runtimes."""

from typing import Protocol


class RuntimeMaps(Protocol):
    """The maps of the profiler's program; ProfileProgram has them."""

    def set_entry(self, table: str, key: int, value: bytes) -> None:
        """Sets an entry of the map with this name, whose keys are u32. Raises OSError; E2BIG if it is full."""

    def delete_entry(self, table: str, key: int) -> None:
        """Deletes an entry, if it is there."""
