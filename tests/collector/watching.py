"""A sampler whose stacks are walked to their ends, as the collector's are."""

from collections.abc import Iterator
from contextlib import contextmanager

from collector.bpf.off_cpu import Waits
from collector.bpf.sampler import Sampler
from collector.host import Host
from collector.processes.mapped_files import FileCache
from collector.unwind.tables.cache import TableCache
from tests.unwind_tables import tables


@contextmanager
def watching(
    frequency_hz: int, loader: str = "auto", sizes: dict[str, int] | None = None, waits: Waits | None = None
) -> Iterator[tuple[Host, Sampler]]:
    sampler = Sampler(frequency_hz, loader, sizes, waits)
    sampler.load()
    host = Host(sampler.program, FileCache(), TableCache(tables()))
    host.start()
    sampler.start()
    try:
        yield host, sampler
    finally:
        host.close()
        sampler.close()
