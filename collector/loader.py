"""Chooses what brings the profiler's programs into the kernel.

`libbpf` loads the committed object, which needs a kernel with BTF; `bcc` compiles the same source on the host.
"""

from collector.loader_types import Loader, LoadError, Program

__all__ = ["LOADERS", "LoadError", "Loader", "Program", "choose"]

LOADERS = ("libbpf", "bcc")


def choose(name: str) -> Loader:
    """The side of that name. Raises LoadError when it is unknown or cannot run here."""
    if name == "libbpf":
        from collector.libbpf import LibbpfLoader

        return LibbpfLoader()
    if name == "bcc":
        from collector.bcc import BccLoader

        return BccLoader()
    raise LoadError(f"unknown loader {name!r}: expected one of {', '.join(LOADERS)}")
