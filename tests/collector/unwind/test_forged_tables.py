"""A user without rights runs a program with another program's build ID and path, and tables that lead nowhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collector.bpf.sampler import Sampler
from collector.host import Host
from collector.processes.mapped_files import FileCache
from collector.unwind.tables.cache import TableCache
from tests.collector.bpf.test_sampler import PROGRAMS, meet, profile, running
from tests.collector.forging import NOBODY, compiled, folder, running_forged

__all__ = ["folder"]
pytestmark = pytest.mark.ebpf


def test_a_forged_file_does_not_cut_the_stacks_of_the_program_whose_build_id_it_has(
    folder: Path, tmp_path: Path
) -> None:
    busy = compiled(PROGRAMS / "busy.c", folder / "busy", "-O1", "-fomit-frame-pointer")
    without_tables = "-O1", "-fomit-frame-pointer", "-fno-asynchronous-unwind-tables"
    forged = compiled(PROGRAMS / "busy.c", folder / "forged", *without_tables, owner=NOBODY)
    with (
        running(199) as sampler,
        _walking(sampler, tmp_path),
        running_forged(forged, busy, "1", "2000", "3") as attacker,
    ):
        assert attacker.stdin
        assert attacker.stdout
        attacker.stdin.write(b"\n")
        assert attacker.stdout.readline()  # it worked for two seconds, so its table was asked for
        sampler.drain()
        meet(busy, sampler)
        assert profile(busy, sampler, threads=1, milliseconds=1000).whole()


@contextmanager
def _walking(sampler: Sampler, tables: Path) -> Iterator[None]:
    """User stacks are walked to their ends, by tables of this test's own."""
    host = Host(sampler.program, FileCache(), TableCache(tables))
    host.start()
    try:
        yield
    finally:
        host.close()
