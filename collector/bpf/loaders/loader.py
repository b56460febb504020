"""The interface between the profiler and what brings its programs into the kernel."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol


class LoadError(RuntimeError):
    """The programs cannot be brought into this kernel; the message says why and what to do."""


class Program(Protocol):
    """Loaded programs and their maps, as file descriptors that stay valid until `close`."""

    fd: int
    """The file descriptor of the requested program."""

    def programs(self) -> Collection[str]:
        """The names of all programs, including the requested one."""

    def program_fd(self, name: str) -> int:
        """Raises LoadError when there is no program of that name."""

    def map_fd(self, name: str) -> int:
        """Raises LoadError when there is no map of that name."""

    def close(self) -> None: ...


class Loader(Protocol):
    def load(self, source: Path, program: str, sizes: Mapping[str, int], without: str = "") -> Program:
        """Loads the programs of `source` (a `.bpf.c` file; its object lies beside it); `program` is the one to attach.

        `sizes` sets the max_entries of maps by name. Programs whose name starts with `without` are left out, where that
        is given. Raises LoadError.
        """
