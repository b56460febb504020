"""Chooses what brings the profiler's programs into the kernel.

`libbpf` loads the committed object, which needs a kernel with BTF; `bcc` compiles the same source on the host; `auto`
is libbpf where there is BTF, else bcc.
"""

from collector.bpf.loaders import libbpf
from collector.bpf.loaders.loader import Loader, LoadError, Program

__all__ = ["LOADERS", "LoadError", "Loader", "Program", "choose"]

LOADERS = ("auto", "libbpf", "bcc")


def choose(name: str) -> Loader:
    """The loader of that name. Raises LoadError when it is unknown or cannot run here."""
    if name == "auto":
        name = "libbpf" if libbpf.BTF.exists() else "bcc"
    if name == "libbpf":
        return libbpf.LibbpfLoader()
    if name == "bcc":
        from collector.bpf.loaders.bcc import BccLoader  # most hosts never need it

        return BccLoader()
    raise LoadError(f"unknown loader {name!r}: expected one of {', '.join(LOADERS)}")
