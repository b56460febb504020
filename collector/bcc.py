"""The side of the loader seam for kernels without BTF."""

from collections.abc import Mapping
from pathlib import Path

from collector.loader_types import LoadError, Program


class BccLoader:
    """Refuses: compiling on the host with BCC comes in a later release."""

    def load(self, source: Path, program: str, sizes: Mapping[str, int], without: str = "") -> Program:
        raise LoadError(f"the bcc loader (for {source.name}) comes in a later release: use --loader libbpf")
