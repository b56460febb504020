"""Files that look alike but have other code are told apart: each has its own names and unwinding tables."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from collector.elf import identity
from collector.processes import mapped_files
from collector.processes.mapped_files import FileCache, FileIdentity
from collector.processes.mapped_ranges import MappedRangeReader
from collector.processes.process_events import Mapped
from collector.symbols.symbol_files import SymbolFiles, open_by_build_id
from icestream.symbols.build_ids import with_code, without_code
from tests.collector.symbols.test_debug_files import mapped

NO_BUILD_ID, BUILD_ID = "-Wl,--build-id=none", "-Wl,--build-id=0x" + "5a" * 20
SOURCE = """#include <unistd.h>
__attribute__((noinline)) int answer(void) { return 0x11111111; }
int main(void) { return pause() + answer(); }
"""
USER = 12_345


def compiled(path: Path, *options: str) -> Path:
    subprocess.run(["gcc", "-O1", "-x", "c", "-", "-o", path, *options], input=SOURCE.encode(), check=True)
    return path


def patched(program: Path, path: Path) -> Path:
    """The same program with another number in its code."""
    data = program.read_bytes()
    assert data.count(b"\x11\x11\x11\x11") == 1
    path.write_bytes(data.replace(b"\x11\x11\x11\x11", b"\x22\x22\x22\x22"))
    path.chmod(0o755)
    return path


@pytest.fixture
def files() -> Iterator[FileCache]:
    made = FileCache()
    yield made
    made.close()


@pytest.fixture
def run() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def identified(files: FileCache, run: ExitStack, *paths: Path, reported: bytes = b"") -> list[FileIdentity]:
    """What the programs at these paths are known by, each of a process that runs it."""
    found = []
    for path in paths:
        process = run.enter_context(subprocess.Popen([path]))
        run.callback(process.kill)
        entry = mapped(process.pid, path)
        known = files.identify_reported(entry, reported, 4096, os.getuid()) if reported else files.identify(entry)
        assert known is not None
        found.append(known)
    return found


def hashed(path: Path) -> str:
    with path.open("rb") as file:
        return identity.file_hash(file.fileno())


def test_programs_without_a_build_id_and_with_the_same_head_tail_and_length_are_two(
    files: FileCache, run: ExitStack, tmp_path: Path
) -> None:
    one = compiled(tmp_path / "one", NO_BUILD_ID)
    other = patched(one, tmp_path / "other")
    assert hashed(one) == hashed(other)
    first, second = identified(files, run, one, other)
    assert {without_code(each.build_id)[0] for each in (first, second)} == {hashed(one)}
    assert first.build_id != second.build_id
    assert first.key != second.key


@pytest.mark.parametrize("reported", [b"", b"\x5a" * 20])
def test_of_files_with_one_build_id_the_one_seen_first_is_known_by_it_and_another_one_by_its_code_too(
    files: FileCache, run: ExitStack, tmp_path: Path, reported: bytes
) -> None:
    symbols = SymbolFiles(files.hold)
    files.add_listener(symbols)
    one = compiled(tmp_path / "one", BUILD_ID)
    other, stripped = patched(one, tmp_path / "other"), tmp_path / "stripped"
    subprocess.run(["strip", one, "-o", stripped], check=True)
    first, second, third, again = identified(files, run, one, other, stripped, other, reported=reported)
    assert first.build_id == third.build_id == "gnu:" + "5a" * 20
    assert first.key == third.key
    assert second.build_id == again.build_id == with_code(first.build_id, second.code)
    assert len({first.key, second.key, again.key}) == 2
    for known, path in ((first, one), (second, other)):
        opened = open_by_build_id(known.build_id, symbols.owner(known.build_id), symbols.entries(known.build_id), "")
        assert any(os.path.samestat(os.fstat(descriptor), path.stat()) for descriptor in opened)
        held = files.open(known.key)
        assert held is not None
        assert os.path.samestat(os.fstat(held), path.stat())
        os.close(held)


def test_a_program_that_takes_the_place_of_one_with_its_build_id_is_known_by_its_own_code(
    files: FileCache, run: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    open_regular = mapped_files.open_regular
    monkeypatch.setattr(mapped_files, "open_regular", lambda path: opened.append(path) or open_regular(path))
    one, reader = compiled(tmp_path / "one", BUILD_ID), MappedRangeReader(files)
    other, path, keys = patched(one, tmp_path / "other"), tmp_path / "program", []
    for program in (one, one, other, other):
        if len(keys) in (0, 2):
            path.unlink(missing_ok=True)
            path.write_bytes(program.read_bytes())
            path.chmod(0o755)
        process = run.enter_context(subprocess.Popen([path]))
        run.callback(process.kill)
        entry = mapped(process.pid, path)
        code = next(each for each in reader.read(process.pid) if each.entry and each.entry.path == entry.path)
        event = Mapped(1, code.start, code.end, 4096, b"\x5a" * 20, 0, 0, 0, str(path))
        opened.clear()
        keys.append(reader.mapped(process.pid, event, list).file_key)
    assert not opened  # the same program once more
    assert keys[0] == keys[1] != keys[2] == keys[3]


def test_names_of_a_patched_file_do_not_come_from_the_debug_file_of_the_one_before(tmp_path: Path) -> None:
    one = compiled(tmp_path / "one", BUILD_ID, "-g")
    subprocess.run(["objcopy", "--only-keep-debug", one, tmp_path / "one.debug"], check=True)
    link = [f"--add-gnu-debuglink={tmp_path / 'one.debug'}", "--strip-debug"]
    subprocess.run(["objcopy", *link, one], check=True)
    other = patched(one, tmp_path / "other")
    for path, count in ((one, 2), (other, 1)):
        with path.open("rb") as file:
            elf = identity.read_file(file.fileno())
            code = identity.code_hash(lambda offset, size: os.pread(file.fileno(), size, offset), elf)
        own = elf.build_id if path == one else with_code(elf.build_id, code)
        assert len(list(open_by_build_id(own, None, (), str(path)))) == count
        assert not list(open_by_build_id(with_code(elf.build_id, "0" * 16), None, (), str(path)))


def test_a_file_of_root_keeps_its_build_id_whoever_had_one_with_it_before(
    files: FileCache, run: ExitStack, tmp_path: Path
) -> None:
    one = compiled(tmp_path / "one", BUILD_ID)
    forged = patched(one, tmp_path / "forged")
    os.chown(forged, USER, USER)
    before, first, after = identified(files, run, forged, one, forged)
    assert first.build_id == before.build_id == "gnu:" + "5a" * 20
    assert after.build_id == with_code(first.build_id, after.code)


def test_the_table_that_is_stored_for_a_program_is_not_one_of_other_code_that_ran_before_the_collector_started(
    run: ExitStack, tmp_path: Path
) -> None:
    one = compiled(tmp_path / "one", BUILD_ID)
    keys = []
    for path in (one, patched(one, tmp_path / "other")):
        files = FileCache()
        [known] = identified(files, run, path)
        keys.append((known.build_id, known.key))
        files.close()
    assert keys[0][0] == keys[1][0] == "gnu:" + "5a" * 20
    assert keys[0][1] != keys[1][1]


def test_a_hash_that_another_profiler_sends_leads_to_the_file_if_it_is_the_only_one_with_it(
    files: FileCache, run: ExitStack, tmp_path: Path
) -> None:
    symbols = SymbolFiles(files.hold)
    files.add_listener(symbols)
    one = compiled(tmp_path / "one", NO_BUILD_ID)
    identified(files, run, one)
    [opened] = [os.fstat(each) for each in open_by_build_id(hashed(one), 0, symbols.entries(hashed(one)), "")]
    assert os.path.samestat(opened, one.stat())
    held = symbols.open_held(hashed(one))
    assert held is not None
    os.close(held)
    identified(files, run, patched(one, tmp_path / "other"))
    assert symbols.entries(hashed(one)) == []
