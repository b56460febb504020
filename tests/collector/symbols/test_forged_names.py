"""A user without rights runs a program with another program's build ID, and names of its own."""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from collector.processes.file_owner import ROOT
from collector.processes.mapped_files import FileCache
from collector.processes.mapped_ranges import MappedRangeReader
from collector.processes.process_events import Mapped
from collector.symbols.builder import SymbolBuilder
from collector.symbols.debug_files import DEBUG
from collector.symbols.name_kinds import DEBUG_INFO, SYMBOL_TABLE
from collector.symbols.symbol_files import SymbolFiles
from tests.collector.forging import BUILD_ID, NOBODY, compiled, folder, running_forged
from tests.collector.symbols.test_debug_files import mapped

pytestmark = pytest.mark.slow

__all__ = ["folder"]
USER = 12_345
SOURCE = """#include <unistd.h>
int NAME(void) { return pause(); }
int main(void) { write(1, "ready\\n", 6); return NAME(); }
"""


@pytest.fixture
def program(folder: Path) -> Callable[..., Path]:
    """Compiles a program whose names tell its owner apart: only a user's has debug information."""

    def program(name: str, owner: int) -> Path:
        source = folder / f"{name}.c"
        source.write_text(SOURCE.replace("NAME", name))
        return compiled(source, folder / name, *["-g"] * (owner != ROOT), owner=owner)

    return program


class Seen:
    """Programs that run, and were seen by a collector."""

    def __init__(self, stack: ExitStack) -> None:
        self.cache = FileCache()
        stack.callback(self.cache.close)
        self.files = SymbolFiles(self.cache.open)
        self.cache.add_listener(self.files)
        self._builder = SymbolBuilder("host", "", self.files)
        stack.callback(self._builder.end_children)
        self._stack = stack

    def run(self, program: Path, user: int) -> "subprocess.Popen[bytes]":
        process = self.start([str(program)], user=user)
        assert self.cache.identify(mapped(process.pid, program)) is not None
        return process

    def start(self, command: list[str], user: int | None = None) -> "subprocess.Popen[bytes]":
        process = self._stack.enter_context(subprocess.Popen(command, user=user, stdout=subprocess.PIPE, bufsize=0))
        self._stack.callback(process.kill)
        return process

    def kind_of_names(self, path: Path) -> int:
        [answer] = self._builder.answer(f"gnu:{BUILD_ID}", str(path))
        assert not answer.error
        return answer.version


@pytest.fixture
def seen() -> Iterator[Seen]:
    with ExitStack() as stack:
        yield Seen(stack)


@pytest.mark.parametrize("forged_first", [True, False])
def test_a_program_of_root_is_named_by_files_that_only_root_can_change(
    program: Callable[..., Path], seen: Seen, forged_first: bool
) -> None:
    whole, forged = program("whole", ROOT), program("forged", NOBODY)
    for path, user in sorted([(whole, ROOT), (forged, NOBODY)], key=lambda run: run[1], reverse=forged_first):
        seen.run(path, user)
    assert seen.kind_of_names(whole) == SYMBOL_TABLE
    assert seen.kind_of_names(forged) == SYMBOL_TABLE  # the path that is asked for may be the forger's


def test_a_forged_file_does_not_give_its_build_id_to_the_debug_file_of_another_program(
    program: Callable[..., Path], folder: Path, seen: Seen
) -> None:
    whole, forged = program("whole", ROOT), program("forged", ROOT)
    other = folder / "other.debug"
    subprocess.run(["gcc", "-g", folder / "forged.c", "-o", other, "-Wl,--build-id=none"], check=True)
    subprocess.run(["objcopy", f"--add-gnu-debuglink={other}", forged], check=True)  # by its checksum, it belongs to it
    os.chown(forged, NOBODY, NOBODY)
    seen.run(whole, ROOT)
    seen.run(forged, NOBODY)
    assert seen.kind_of_names(forged) == SYMBOL_TABLE


def test_a_debug_file_below_a_mount_of_a_user_is_not_taken_for_one_of_root(
    program: Callable[..., Path], folder: Path, seen: Seen
) -> None:
    whole, forged = program("whole", ROOT), program("forged", ROOT)
    subprocess.run(["gcc", "-g", folder / "forged.c", "-o", forged, f"-Wl,--build-id=0x{BUILD_ID}"], check=True)
    place = f"{DEBUG}/.build-id/{BUILD_ID[:2]}"
    script = (
        f"mount -t tmpfs none {DEBUG} && mkdir -p {place} && cp {forged} {place}/{BUILD_ID[2:]}.debug && exec {whole}"
    )
    # As root, because a user needs FUSE below an overlay for files there that look like root's.
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    attacker = seen.start(command)
    assert attacker.stdout
    assert attacker.stdout.read(6) == b"ready\n"
    assert seen.cache.identify(mapped(attacker.pid, whole)) is not None
    assert seen.kind_of_names(whole) == SYMBOL_TABLE


def test_among_users_the_file_that_was_seen_first_is_taken_while_it_runs(
    program: Callable[..., Path], seen: Seen
) -> None:
    whole, forged = program("whole", USER), program("forged", NOBODY)
    subprocess.run(["strip", "-g", whole], check=True)
    first = seen.run(whole, USER)
    seen.run(forged, NOBODY)
    assert seen.kind_of_names(forged) == SYMBOL_TABLE
    first.kill()
    first.wait()
    whole.unlink()
    time.sleep(1)  # a file is noted once a second
    seen.run(forged, NOBODY)
    assert seen.kind_of_names(forged) == DEBUG_INFO


def test_a_forged_file_at_the_path_of_another_is_a_file_of_its_own(program: Callable[..., Path], seen: Seen) -> None:
    whole, forged = program("whole", ROOT), program("forged", NOBODY)
    ranges = MappedRangeReader(seen.cache)

    def key(pid: int) -> str:
        """The key of the file in the mapping that the kernel reports with its build ID, when the process starts."""
        entry = mapped(pid, whole)
        code = next(part for part in ranges.read(pid) if part.entry and part.entry.path == str(whole))
        assert code.entry
        event = Mapped(1, code.start, code.end, 4096, bytes.fromhex(BUILD_ID), 0, 0, 0, entry.path)
        return ranges.mapped(pid, event).file_key

    with running_forged(forged, whole) as attacker:
        forged_key = key(attacker.pid)
        assert re.fullmatch(rf"gnu:{BUILD_ID}\+[0-9a-f]{{16}}@{NOBODY}", forged_key)
        victim = seen.run(whole, ROOT)
        true_key = key(victim.pid)
        assert re.fullmatch(rf"gnu:{BUILD_ID}\+[0-9a-f]{{16}}", true_key)
        for owner, pid, opened in ((NOBODY, attacker.pid, forged_key), (ROOT, victim.pid, true_key)):
            descriptor = seen.cache.open(opened)
            assert descriptor is not None
            assert Path(f"/proc/self/fd/{descriptor}").stat().st_uid == owner, pid
        assert seen.kind_of_names(whole) == SYMBOL_TABLE
