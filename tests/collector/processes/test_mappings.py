"""Addresses of real processes as (file, ELF virtual address)."""

import ctypes
import mmap
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from collector.elf import identity
from collector.processes import known_process, mappings, process_table
from collector.processes.mapped_files import JIT, FileCache, MappedFile, MapsEntry, open_entry
from collector.processes.mappings import ProcessMappings
from collector.processes.perfmap import JitName
from icestream.v1.common_pb2 import Mapping
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

WAIT = 'int main(int count, char **names) { puts("ready"); fflush(stdout); getchar(); return 0; }'


@pytest.fixture
def mine() -> ProcessMappings:
    known = ProcessMappings(FileCache())
    known.notice(os.getpid())
    return known


def reading_perf_maps() -> ProcessMappings:
    """One whose child has time to start on a busy machine."""
    known = ProcessMappings(FileCache())
    known._perf_maps._reader.child.timeout_s = PATIENCE_S
    return known


def located(known: ProcessMappings, pid: int, *addresses: int) -> list[tuple[MappedFile, int]]:
    found = known.locate(pid, np.array(addresses, np.uint64))
    return [
        (found.files[row], address) for row, address in zip(found.file.tolist(), found.address.tolist(), strict=True)
    ]


def waiting(*command: str, cwd: Path | None = None) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd)
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program"
    source = f"#include <stdio.h>\n{WAIT}"
    subprocess.run(["gcc", "-x", "c", "-", "-no-pie", "-o", path], input=source.encode(), check=True)
    return path


@pytest.fixture
def running(program: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = waiting(str(program))
    yield process
    process.kill()
    process.wait()


def address_of(path: Path, symbol: str) -> int:
    lines = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines()
    return next(int(line.split()[0], 16) for line in lines if line.endswith(f" T {symbol}"))


def test_a_function_of_a_library_is_at_the_address_that_its_file_gives(mine: ProcessMappings) -> None:
    libc = ctypes.CDLL("libc.so.6")
    address = ctypes.cast(libc.malloc, ctypes.c_void_p).value or 0
    [(file, vaddr)] = located(mine, os.getpid(), address)
    symbols = subprocess.run(["nm", "-D", file.file], capture_output=True, text=True, check=True).stdout
    assert f"{vaddr:016x} T malloc@" in symbols
    assert file.kind == Mapping.FILE
    assert file.build_id.startswith("gnu:")


def test_an_executable_at_a_fixed_address_keeps_its_addresses(
    mine: ProcessMappings, program: Path, running: subprocess.Popen[bytes]
) -> None:
    mine.notice(running.pid)
    main = address_of(program, "main")
    with open(program, "rb") as file:
        build_id = identity.read_file(file.fileno()).build_id
    assert located(mine, running.pid, main) == [(MappedFile(Mapping.FILE, build_id, str(program)), main)]


def test_a_deleted_file_is_still_known_by_its_content(
    mine: ProcessMappings, program: Path, running: subprocess.Popen[bytes]
) -> None:
    main = address_of(program, "main")
    program.unlink()
    mine.notice(running.pid)
    [(file, _)] = located(mine, running.pid, main)
    assert file.build_id.startswith("gnu:")
    assert file.file == str(program)


def test_a_file_that_was_compiled_again_in_its_place_is_another_one(mine: ProcessMappings, tmp_path: Path) -> None:
    ids = []
    for text in ("one", "two"):
        path = tmp_path / "program"
        path.unlink(missing_ok=True)
        source = f'#include <stdio.h>\nconst char *text = "{text}";\n{WAIT}'
        subprocess.run(["gcc", "-x", "c", "-", "-no-pie", "-o", path], input=source.encode(), check=True)
        process = waiting(str(path))
        mine.notice(process.pid)
        ids.append(located(mine, process.pid, address_of(path, "main"))[0][0].build_id)
        process.kill()
        process.wait()
    assert ids[0] != ids[1]


def test_after_exec_the_new_program_counts(mine: ProcessMappings, program: Path) -> None:
    script = f"import os, sys; print('ready', flush=True); sys.stdin.readline(); os.execv('{program}', ['program'])"
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    mine.notice(process.pid)
    process.stdin.write(b"\n")
    process.stdin.flush()
    process.stdout.readline()
    mine.notice(process.pid)
    assert located(mine, process.pid, address_of(program, "main"))[0][0].file == str(program)
    process.kill()
    process.wait()


def test_a_library_that_is_loaded_later_is_found(
    mine: ProcessMappings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(known_process, "REFRESH_FIRST_S", 0.0)
    known = ProcessMappings(FileCache())
    known.notice(os.getpid())
    path = tmp_path / "later.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=b"int later(void) { return 1; }", check=True
    )
    address = ctypes.cast(ctypes.CDLL(str(path)).later, ctypes.c_void_p).value or 0
    assert located(known, os.getpid(), address)[0][0].file == str(path)


def test_addresses_outside_of_any_code_are_unknown_and_all_the_same(mine: ProcessMappings) -> None:
    unknown = (MappedFile(Mapping.UNKNOWN, "", ""), 0)
    assert located(mine, os.getpid(), 5, 2**64 - 1, id(object())) == [unknown] * 3


def test_a_process_that_nobody_noticed_is_unknown() -> None:
    assert located(ProcessMappings(FileCache()), 1, 5) == [(MappedFile(Mapping.UNKNOWN, "", ""), 0)]


def test_a_process_that_ended_keeps_its_mappings_for_its_last_samples(
    mine: ProcessMappings, program: Path, running: subprocess.Popen[bytes]
) -> None:
    mine.notice(running.pid)
    running.kill()
    running.wait()
    assert mine.notice(running.pid) is None
    assert located(mine, running.pid, address_of(program, "main"))[0][0].file == str(program)


def test_processes_are_known_until_they_ended_and_nobody_asks(
    mine: ProcessMappings, running: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine.notice(running.pid)
    assert mine.expire() == []
    monkeypatch.setattr(mappings, "_KEEP_S", -1.0)
    assert mine.expire() == []
    running.kill()
    running.wait()
    assert mine.expire() == [running.pid]
    assert len(mine) == 1


def test_too_many_mappings_cost_the_user_with_most_the_processes_used_least(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    known = ProcessMappings(FileCache())
    with ExitStack() as running:

        def start(user: int) -> int:
            process = running.enter_context(subprocess.Popen(["sleep", "1000"], user=user))
            running.callback(process.kill)
            wait_until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
            wait_until(lambda: re.search(r" r-xp .*libc", Path(f"/proc/{process.pid}/maps").read_text()))
            known.notice(process.pid)
            return process.pid

        victims, attackers = [start(65_532) for _ in range(2)], [start(65_533) for _ in range(8)]
        located(known, attackers[0], 5)  # the others were used before it
        monkeypatch.setattr(process_table, "MAX_RANGES", 8 * len(known.ranges(victims[0])))
        forgotten = known.expire()
    assert 3 <= len(forgotten) <= 5
    assert set(forgotten) <= set(attackers[1:])


def test_the_vdso_is_a_file_with_a_build_id(mine: ProcessMappings) -> None:
    line = next(line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("[vdso]"))
    start = int(line.split("-")[0], 16)
    [(file, vaddr)] = located(mine, os.getpid(), start + 0x900)
    assert (file.file, vaddr) == ("[vdso]", 0x900)
    assert file.build_id.startswith("gnu:")


def test_a_path_that_holds_another_file_now_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    status = (tmp_path / "file").stat()
    gone = 2**22 + 1  # no process has this ID
    entry = MapsEntry(gone, 0, 1, status.st_dev, status.st_ino, str(tmp_path / "file"))
    os.close(open_entry(entry))
    with pytest.raises(OSError, match="file"):
        open_entry(entry._replace(inode=entry.inode + 1))


def test_locating_takes_no_time_per_address(mine: ProcessMappings) -> None:
    address = ctypes.cast(ctypes.CDLL("libc.so.6").malloc, ctypes.c_void_p).value or 0
    addresses = np.full(200_000, address, np.uint64)
    started = time.thread_time()
    mine.locate(os.getpid(), addresses)
    assert time.thread_time() - started < 1


@pytest.fixture
def compiled_code() -> Iterator[int]:
    """Address of anonymous executable memory."""
    protection = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    memory = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=protection)
    holder = ctypes.c_char.from_buffer(memory)
    yield ctypes.addressof(holder)
    del holder
    memory.close()


def test_code_compiled_at_run_time_has_the_name_of_the_perf_map(compiled_code: int) -> None:
    known = reading_perf_maps()
    known.notice(os.getpid())
    path = Path(f"/tmp/perf-{os.getpid()}.map")
    path.write_text(f"{compiled_code:x} 100 compiled function\n")
    try:
        found = known.locate(os.getpid(), np.array([compiled_code + 5, compiled_code + 0x500], np.uint64))
    finally:
        path.unlink()
        known.close()
    assert [found.files[row] for row in found.file.tolist()] == [JIT, MappedFile(Mapping.UNKNOWN, "", "[anon]")]
    assert found.names[int(found.name[0])].function == "compiled function"
    assert found.name[1] == -1
    assert found.address[0] == 0


def test_a_file_in_another_mount_namespace_is_known_by_its_content(
    mine: ProcessMappings, program: Path, tmp_path: Path
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    script = f"mount -t tmpfs none {inside} && cp {program} {inside}/p && exec {inside}/p"
    process = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    if not process.stdout.readline():
        pytest.skip("no mount namespaces here")
    mine.notice(process.pid)
    [(file, _)] = located(mine, process.pid, address_of(program, "main"))
    process.kill()
    process.wait()
    assert file.file == f"{inside}/p"
    assert not Path(file.file).exists()
    assert file.build_id.startswith("gnu:")


def test_processes_that_die_while_they_are_read_do_no_harm() -> None:
    known = ProcessMappings(FileCache())
    stop = time.monotonic() + 1
    while time.monotonic() < stop:
        process = subprocess.Popen(["/bin/true"])
        for _ in range(20):
            known.notice(process.pid)
            known.notify(process.pid, 5)
            known.locate(process.pid, np.array([5, 2**47], np.uint64))
        process.wait()


def test_javascript_compiled_at_run_time_has_function_file_and_line(tmp_path: Path) -> None:
    if not shutil.which("node"):
        pytest.skip("no Node here")
    (tmp_path / "app.js").write_text(
        "function total(n) { let s = 0; for (let i = 0; i < n; i++) s += i % 7; return s; }\n"
        "for (let i = 0; i < 3000; i++) total(10000);\n"
        "console.log(process.pid); setInterval(() => total(10), 1000);\n"
    )
    process = waiting("node", "--perf-basic-prof", str(tmp_path / "app.js"), cwd=tmp_path)  # it leaves a log
    known = reading_perf_maps()
    try:
        known.notice(process.pid)
        perf_map = Path(f"/tmp/perf-{process.pid}.map")
        line = next(text for text in reversed(perf_map.read_text().splitlines()) if "total" in text)
        found = known.locate(process.pid, np.array([int(line.split()[0], 16)], np.uint64))
    finally:
        process.kill()
        process.wait()
        perf_map.unlink(missing_ok=True)
        known.close()
    assert found.names[int(found.name[0])] == JitName("total", str(tmp_path / "app.js"), 1)
