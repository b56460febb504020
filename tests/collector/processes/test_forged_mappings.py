"""Files are told apart although a user without rights forges what the kernel reports of them: build ID and path."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from collector.processes import mapped_files
from collector.processes.mapped_files import FileCache
from collector.processes.mapped_ranges import MappedRange, MappedRangeReader
from collector.processes.process_events import Mapped
from tests.collector.forging import BUILD_ID, NOBODY, compiled, folder, running_forged
from tests.collector.symbols.test_debug_files import mapped

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize("owner", [USER, 0])
def test_where_the_code_of_a_program_lies_is_known_although_another_user_forged_it_and_the_process_ended(
    program: Callable[..., Path], run: Callable[..., "subprocess.Popen[bytes]"], ranges: MappedRangeReader, owner: int
) -> None:
    whole = program("whole", owner=owner)
    forged = program("forged", "-Wl,--section-start=.interp=0x10318", owner=NOBODY)  # has its code elsewhere
    with running_forged(forged, whole) as attacker:
        for _ in range(2):
            ranges.mapped(attacker.pid, event(attacker.pid, whole))
            victim = run(whole, owner)
            reported = event(victim.pid, whole)
            victim.kill()
            victim.wait()
            assert vaddr(ranges.mapped(victim.pid, reported)) == 4096
            victim = run(whole, owner)
            assert vaddr(ranges.mapped(victim.pid, event(victim.pid, whole))) == 4096


def test_a_file_of_one_user_that_another_one_runs_again_and_again_is_opened_once(
    program: Callable[..., Path],
    run: Callable[..., "subprocess.Popen[bytes]"],
    ranges: MappedRangeReader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = []
    open_regular = mapped_files.open_regular
    monkeypatch.setattr(mapped_files, "open_regular", lambda path: opened.append(path) or open_regular(path))
    tool = program("tool", owner=USER)
    keys = set()
    for _ in range(3):
        for user in (NOBODY, USER, 0):
            process = run(tool, user)
            keys.add(ranges.mapped(process.pid, event(process.pid, tool)).file_key)
    assert [key.partition("+")[0] + key[-6:] for key in keys] == [f"gnu:{BUILD_ID}@{USER}"]
    assert len(opened) == 3
