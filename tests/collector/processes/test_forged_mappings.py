"""Files are told apart although a user without rights forges what the kernel reports of them: build ID and path."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from collector.processes.mapped_files import FileCache
from collector.processes.mapped_ranges import MappedRange, MappedRangeReader
from collector.processes.process_events import Mapped
from tests.collector.forging import BUILD_ID, NOBODY, compiled, folder, running_forged
from tests.collector.symbols.test_debug_files import mapped

__all__ = ["folder"]
USER = 12_345
SOURCE = """#include <unistd.h>
int main(void) { write(1, "ready\\n", 6); return pause(); }
"""


@pytest.fixture
def program(folder: Path) -> Callable[..., Path]:
    source = folder / "source.c"
    source.write_text(SOURCE)
    return lambda name, *options, owner: compiled(source, folder / name, *options, owner=owner)


@pytest.fixture
def run() -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    with ExitStack() as stack:

        def run(path: Path, user: int) -> "subprocess.Popen[bytes]":
            process = stack.enter_context(subprocess.Popen([path], user=user, stdout=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stdout
            assert process.stdout.read(6) == b"ready\n"
            return process

        yield run


@pytest.fixture
def ranges() -> Iterator[MappedRangeReader]:
    files = FileCache()
    yield MappedRangeReader(files)
    files.close()


def event(pid: int, mapped_path: Path, said: Path | None = None) -> Mapped:
    """What the kernel reports when a process maps the code of a program; `said`: as the code of which one."""
    entry = mapped(pid, mapped_path)
    return Mapped(1, entry.start, entry.end, 4096, bytes.fromhex(BUILD_ID), 0, 0, 0, str(said or entry.path))


def vaddr(found: MappedRange) -> int:
    return found.start + found.bias & (1 << 64) - 1


def test_a_file_that_was_mapped_in_place_of_another_one_is_not_taken_for_it(
    program: Callable[..., Path], run: Callable[..., "subprocess.Popen[bytes]"], ranges: MappedRangeReader
) -> None:
    whole = program("whole", owner=0)
    other = program("other", f"-Wl,--build-id=0x{1:040x}", "-Wl,--section-start=.interp=0x10318", owner=0)
    attacker = run(other, NOBODY)  # it mapped a forged file there before, which the kernel reported
    ranges.mapped(attacker.pid, event(attacker.pid, other, said=whole))
    victim = run(whole, 0)
    found = ranges.mapped(victim.pid, event(victim.pid, whole))
    assert (found.file.build_id, vaddr(found)) == (f"gnu:{BUILD_ID}", 4096)
