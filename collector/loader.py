"""The seam between the sampler and what brings its program into the kernel.

Two sides: `libbpf` loads the committed object, which needs a kernel with BTF; `bcc` compiles the same source
on the host.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

LOADERS = ("libbpf", "bcc")


class LoadError(RuntimeError):
    """The program cannot be brought into this kernel; the message says why and what to do."""


class Program(Protocol):
    """A loaded program and its maps, as file descriptors that stay valid until `close`."""

    fd: int

    def map_fd(self, name: str) -> int:
        """Raises LoadError when the program has no map of that name."""

    def close(self) -> None: ...


class Loader(Protocol):
    def load(self, source: Path, program: str, sizes: Mapping[str, int]) -> Program:
        """Loads function `program` of `source` (a `.bpf.c` file; its object lies beside it).

        `sizes` sets the max_entries of maps by name. Raises LoadError.
        """


def choose(name: str) -> Loader:
    """The side of that name. Raises LoadError when it is unknown or cannot run here."""
    if name == "libbpf":
        from collector.libbpf import LibbpfLoader

        return LibbpfLoader()
    if name == "bcc":
        from collector.bcc import BccLoader

        return BccLoader()
    raise LoadError(f"unknown loader {name!r}: expected one of {', '.join(LOADERS)}")
