"""Names of stripped programs from files beside them: each path, and what must not be taken."""

import lzma
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard
from symbolic.symcache import SymCache

from collector.elf import identity
from collector.processes.file_owner import ROOT
from collector.processes.mapped_files import FileCache, MapsEntry
from collector.symbols import debug_files, names_worker, symcache_child
from collector.symbols.builder import SymbolBuilder
from collector.symbols.name_kinds import DEBUG_INFO, DYNAMIC, LINE_TABLE, SYMBOL_TABLE
from collector.symbols.names_worker import NamesWorker
from collector.symbols.symbol_files import SymbolFiles
from tests.open_files import open_files
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

SOURCE = """
static __attribute__((noinline)) int local(int x) { return x * 42; }
int exported(int x) { return local(x) + 1; }
int main(void) { return exported(1); }
"""
NO_BUILD_ID = "-Wl,--build-id=none"


class Program:
    """A stripped program, and what was stripped from it."""

    def __init__(self, folder: Path, *flags: str) -> None:
        folder.mkdir(exist_ok=True)
        self.path, self.whole, self.debug = folder / "program", folder / "whole", folder / "program.debug"
        (folder / "a.c").write_text(SOURCE)
        run("gcc", "-g", "-O1", "-rdynamic", *flags, folder / "a.c", "-o", self.whole)
        run("objcopy", "--only-keep-debug", self.whole, self.debug)
        run("objcopy", "--strip-all", f"--add-gnu-debuglink={self.debug}", self.whole, self.path)
        with open(self.path, "rb") as file:
            self.build_id = identity.read_file(file.fileno()).build_id or identity.file_hash(file.fileno())
        self.address = {line.split()[2]: int(line.split()[0], 16) for line in nm(self.whole) if len(line.split()) == 3}

    def move_debug(self, to: Path) -> Path:
        to.parent.mkdir(parents=True, exist_ok=True)
        return self.debug.rename(to)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path / "bin")


@pytest.fixture
def debug_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is /usr/lib/debug elsewhere."""
    monkeypatch.setattr(debug_files, "DEBUG", str(tmp_path / "debug"))
    return tmp_path / "debug"


@pytest.fixture(scope="module")
def worker() -> Iterator[NamesWorker]:
    """The process that reads the names."""
    process, jobs = names_worker.start()
    with jobs:
        yield NamesWorker(jobs)
    process.kill()
    process.wait()


@pytest.fixture
def names(tmp_path: Path, debug_folder: Path, worker: NamesWorker) -> Callable[..., tuple[int, list[tuple[str, int]]]]:
    """The version, and what it names in `local`: functions and lines."""

    def names(program: Program, *entries: MapsEntry, path: str | None = None) -> tuple[int, list[tuple[str, int]]]:
        packed = str(tmp_path / "symcache.zst")
        job = {"build_id": program.build_id, "path": str(program.path) if path is None else path, "more": []}
        answer = symcache_child.answer(
            job | {"owner": None, "entries": entries, "store": "", "compressed": packed}, worker
        )
        if "error" in answer:
            raise AssertionError(answer["error"])
        cache = SymCache.from_bytes(zstandard.ZstdDecompressor().decompress(Path(packed).read_bytes()))
        found = cache.lookup(program.address["local"] + 1 - answer["load_address"])
        return answer["version"], [(line.symbol, line.line) for line in found]

    return names


Names = Callable[..., tuple[int, list[tuple[str, int]]]]
WHOLE = (DEBUG_INFO, [("local", 2)])
STRIPPED = (DYNAMIC, [])


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


def nm(path: Path, *flags: str) -> list[str]:
    return subprocess.check_output(["nm", *flags, path], text=True).splitlines()


def test_the_names_that_are_left_are_taken_where_there_is_no_debug_file(program: Program, names: Names) -> None:
    program.debug.unlink()
    assert names(program) == STRIPPED


def test_a_debug_file_is_found_by_build_id(program: Program, names: Names, debug_folder: Path) -> None:
    digits = program.build_id.removeprefix("gnu:")
    program.move_debug(debug_folder / ".build-id" / digits[:2] / f"{digits[2:]}.debug")
    assert names(program) == WHOLE
    program.path.unlink()
    assert names(program) == WHOLE


@pytest.mark.parametrize("flag", ["-Wl,--build-id", NO_BUILD_ID])
@pytest.mark.parametrize(
    "debug_path", ["{folder}/program.debug", "{folder}/.debug/program.debug", "{debug}{folder}/program.debug"]
)
def test_a_debug_file_is_found_by_the_link_in_the_program(
    names: Names, tmp_path: Path, debug_folder: Path, flag: str, debug_path: str
) -> None:
    program = Program(tmp_path / "linked", flag)
    assert program.build_id.startswith("htlhash:" if flag == NO_BUILD_ID else "gnu:")
    program.move_debug(Path(debug_path.format(folder=program.path.parent, debug=debug_folder)))
    assert names(program) == WHOLE


def test_a_debug_file_with_another_build_id_is_not_taken(program: Program, names: Names, tmp_path: Path) -> None:
    other = Program(tmp_path / "other", "-DOTHER", "-O0")
    assert other.build_id != program.build_id
    other.debug.rename(program.debug)
    assert names(program) == STRIPPED


def test_without_build_ids_a_debug_file_with_another_checksum_is_not_taken(names: Names, tmp_path: Path) -> None:
    program = Program(tmp_path / "program", NO_BUILD_ID)
    with open(program.debug, "ab") as file:
        file.write(b"\0")
    assert names(program) == STRIPPED


def test_a_link_leads_to_no_other_folder(program: Program, tmp_path: Path) -> None:
    with open(program.path, "rb") as file:
        assert debug_files.debug_link(file.fileno()) is not None
    data = program.path.read_bytes()
    for name in (b"../../x.debug", b"/etc/x.debug", b"", b".."):
        changed = data.replace(b"program.debug", name.ljust(13, b"\0"))
        (tmp_path / "changed").write_bytes(changed)
        with open(tmp_path / "changed", "rb") as file:
            assert debug_files.debug_link(file.fileno()) is None


@pytest.mark.ebpf  # chroot needs root
def test_debug_files_in_the_root_of_a_container_are_found(program: Program, names: Names, tmp_path: Path) -> None:
    root = tmp_path / "root"
    inside = root / debug_files.DEBUG.lstrip("/") / ".build-id"
    digits = program.build_id.removeprefix("gnu:")
    program.move_debug(inside / digits[:2] / f"{digits[2:]}.debug")
    sleeper = "import os, sys, time; os.chroot(sys.argv[1]); print('there', flush=True); time.sleep(1000)"
    process = subprocess.Popen([sys.executable, "-c", sleeper, root], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        status = program.path.stat()
        entry = MapsEntry(process.pid, 0, 1, status.st_dev, status.st_ino, str(program.path))
        assert names(program) == STRIPPED
        assert names(program, entry) == WHOLE
    finally:
        process.kill()
        process.communicate()


def test_mini_debug_info_names_local_functions(program: Program, names: Names, tmp_path: Path) -> None:
    """Made as Fedora's find-debuginfo does."""
    program.debug.unlink()
    mini, packed = tmp_path / "mini", tmp_path / "mini.xz"
    functions = {
        line.split()[0] for line in nm(program.whole, "--format=posix", "--defined-only") if line.split()[1] in "tT"
    }
    exported = {line.split()[0] for line in nm(program.path, "-D", "--format=posix", "--defined-only")}
    (tmp_path / "keep").write_text("\n".join(sorted(functions - exported)))
    run("objcopy", "--only-keep-debug", program.whole, mini)
    run(
        "objcopy",
        "-S",
        "--remove-section=.gdb_index",
        "--remove-section=.comment",
        f"--keep-symbols={tmp_path}/keep",
        mini,
    )
    packed.write_bytes(lzma.compress(mini.read_bytes()))
    run("objcopy", f"--add-section=.gnu_debugdata={packed}", program.path)
    version, found = names(program)
    assert (version, found) == (SYMBOL_TABLE, [("local", 0)])


@pytest.mark.parametrize("content", [b"", b"no xz", b"\xfd7zXZ\0" + bytes(100)])
def test_mini_debug_info_that_cannot_be_read_is_no_loss(
    program: Program, names: Names, tmp_path: Path, content: bytes
) -> None:
    program.debug.unlink()
    (tmp_path / "packed").write_bytes(content)
    run("objcopy", f"--add-section=.gnu_debugdata={tmp_path}/packed", program.path)
    assert names(program) == STRIPPED


def test_the_best_names_are_taken(program: Program, names: Names) -> None:
    assert DYNAMIC < SYMBOL_TABLE < LINE_TABLE < DEBUG_INFO
    assert names(program) == WHOLE
    run("strip", "--strip-debug", program.debug)
    assert names(program) == (SYMBOL_TABLE, [("local", 0)])


def test_a_damaged_debug_file_leaves_the_names_that_the_program_has(program: Program, names: Names) -> None:
    data = bytearray(program.debug.read_bytes())
    lines = subprocess.check_output(["readelf", "-SW", program.debug], text=True).splitlines()
    info = next(line.split("PROGBITS")[1].split() for line in lines if ".debug_info" in line)
    for at in range(int(info[1], 16), int(info[1], 16) + int(info[2], 16)):
        data[at] = 0xFF
    program.debug.write_bytes(data)
    version, _ = names(program)
    assert version


def test_debug_information_ends_symbols_that_have_no_size(
    program: Program, worker: NamesWorker, names: Names, tmp_path: Path
) -> None:
    """`_init` does not name the PLT behind it, nor `_fini` all that follows."""
    packed = str(tmp_path / "packed")
    where = {"path": str(program.path), "entries": [], "more": []}
    job = {"build_id": program.build_id, "owner": None, "store": "", "compressed": packed}
    answer = symcache_child.answer(job | where, worker)
    assert answer["version"] == DEBUG_INFO
    cache = SymCache.from_bytes(zstandard.ZstdDecompressor().decompress(Path(packed).read_bytes()))
    for symbol, section in (("_init", ".init"), ("_fini", ".fini")):
        lines = subprocess.check_output(["readelf", "-SW", program.path], text=True).splitlines()
        address, _, size = next(line.split("PROGBITS")[1].split()[:3] for line in lines if f" {section} " in line)
        start, end = int(address, 16), int(address, 16) + int(size, 16)
        assert [line.symbol for line in cache.lookup(start)] == [symbol]
        assert [line.symbol for line in cache.lookup(end - 1)] == [symbol]
        assert cache.lookup(end) == []


def test_a_file_that_is_only_held_open_is_found(program: Program) -> None:
    descriptor = os.open(program.whole, os.O_RDONLY)
    asked = []

    def held(key: str) -> int:
        asked.append(key)
        return os.dup(descriptor)

    files = SymbolFiles(held)
    files.add(program.build_id, ROOT, MapsEntry(2**22 + 1, 0, 1, 0, 0, str(program.path)), "its key")
    for path in (program.path, program.whole, program.debug):
        path.unlink()
    builder = SymbolBuilder("host", "", files)
    [answer] = builder.answer(program.build_id, str(program.path))
    builder.end_children()
    os.close(descriptor)
    assert (answer.version, answer.error, asked) == (DEBUG_INFO, "", ["its key"])
    assert open_files(str(program.path.parent)) == []


def test_a_program_that_has_ended_and_was_deleted_is_named_for_a_while(tmp_path: Path) -> None:
    source = "#include <unistd.h>\nint here(void) { return pause(); }\nint main(void) { return here(); }\n"
    (tmp_path / "b.c").write_text(source)
    run("gcc", "-g", tmp_path / "b.c", "-o", tmp_path / "paused")
    process = subprocess.Popen([tmp_path / "paused"])
    cache = FileCache()
    files = SymbolFiles(cache.open)
    cache.add_listener(files)
    try:
        identity = cache.identify(mapped(process.pid, tmp_path / "paused"))
    finally:
        process.kill()
        process.wait()
    assert identity is not None
    (tmp_path / "paused").unlink()
    builder = SymbolBuilder("host", "", files)
    [answer] = builder.answer(identity.build_id, str(tmp_path / "paused"))
    builder.end_children()
    assert (answer.version, answer.error) == (DEBUG_INFO, "")


def mapped(pid: int, path: Path) -> MapsEntry:
    """Where a process has a file, once it has."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if line.endswith(str(path)):
                start, end = (int(part, 16) for part in line.split()[0].split("-"))
                status = path.stat()
                return MapsEntry(pid, start, end, status.st_dev, status.st_ino, str(path))
    raise AssertionError(f"{path} was not mapped")


def test_nothing_but_regular_files_is_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    began = time.monotonic()
    for path in (str(tmp_path / "pipe"), "/dev/zero", str(tmp_path), str(tmp_path / "gone"), "/x\0y"):
        assert not list(debug_files.opened("/", path))
    assert time.monotonic() - began < 60
