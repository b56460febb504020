"""What the kernel tells of processes, on this kernel: real rings, real processes."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from collector.bpf import perf_event
from collector.elf import identity
from collector.processes import mappings, perf_ring, watch
from collector.processes.listener import ProcessListener
from collector.processes.mapped_files import FileCache
from collector.processes.mappings import MappedRange, ProcessMappings
from collector.processes.process import Process
from collector.processes.watch import Watcher
from tests.open_files import EBPF, open_files
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.ebpf


class Seen(ProcessListener):
    """What Mappings told its listeners last of each process."""

    def __init__(self) -> None:
        self.files = FileCache()
        self.ranges: dict[int, list[MappedRange]] = {}
        self.ends: set[int] = set()
        self.mappings = ProcessMappings(self.files, [self])

    def mapped(self, process: Process, ranges: list[MappedRange]) -> None:
        self.ranges[process.pid] = ranges
        self.ends.discard(process.pid)

    def ended(self, pid: int) -> None:
        self.ends.add(pid)

    def build_ids(self, pid: int) -> dict[str, str]:
        """By file, of what is known of a process."""
        return {mapped_range.file.file: mapped_range.file.build_id for mapped_range in self.mappings.ranges(pid)}


@contextmanager
def watching(**options: float) -> Iterator[tuple[Seen, Watcher]]:
    seen = Seen()
    watcher = Watcher(seen.mappings, **options)  # type: ignore[arg-type]
    watcher.start()
    try:
        yield seen, watcher
    finally:
        watcher.close()
        seen.files.close()


def until(there: Callable[[], bool], seconds: float = PATIENCE_S) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if there():
            return True
        time.sleep(0.005)
    return there()


def compiled(path: Path, source: str, *options: str) -> Path:
    subprocess.run(["gcc", "-x", "c", "-", "-o", path, *options], input=source.encode(), check=True)
    return path


def build_id(path: str | Path) -> str:
    with open(path, "rb") as file:
        return identity.read_file(file.fileno()).build_id


WAIT = '#include <stdio.h>\nint main(void) { puts("ready"); fflush(stdout); getchar(); return 0; }'


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return compiled(tmp_path / "program", WAIT)


@pytest.fixture
def spinning(tmp_path: Path) -> Path:
    """Works for 5 ms, tells its process ID and ends."""
    source = """#include <math.h>\n#include <stdio.h>\n#include <time.h>\n#include <unistd.h>
    int main(void) {
        double x = 2;
        while (clock() < CLOCKS_PER_SEC / 200) x = cos(x);
        return printf("%d\\n", getpid()) < 0 || x > 1;
    }"""
    return compiled(tmp_path / "spinning", source, "-lm")


LIBRARIES = ("libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2")


@pytest.mark.parametrize("budget", [1.0, 0.0], ids=["decoded at once", "decoded when asked"])
def test_200_processes_that_are_gone_are_known_with_the_right_build_ids(spinning: Path, budget: float) -> None:
    script = f"i=0; while [ $i -lt 200 ]; do {spinning}; i=$((i+1)); done"
    with watching(budget=budget) as (seen, watcher):
        if not budget:
            watcher._saved_s = 0.0
        output = subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout
        pids = [int(line) for line in output.split()]
        assert until(lambda: len(seen.build_ids(pids[-1])) >= 5)
        known = [seen.build_ids(pid) for pid in pids]
        assert watcher.lost == 0
        assert watcher.eager == (budget > 0)
    assert len(pids) == 200
    expected = {str(spinning): build_id(spinning)}
    for library in LIBRARIES:
        [path] = [path for path in known[0] if path.endswith(f"/{library}")]
        expected[path] = build_id(path)
    for found in known:
        assert expected.items() <= found.items()
        assert found["[vdso]"].startswith("gnu:")


def test_a_process_is_told_of_while_it_runs_and_its_end_as_well(program: Path) -> None:
    with watching(budget=1.0) as (seen, _):
        process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert until(
            lambda: any(
                mapped_range.file.file.endswith("libc.so.6") for mapped_range in seen.ranges.get(process.pid, [])
            )
        )
        assert str(program) in {mapped_range.file.file for mapped_range in seen.ranges[process.pid]}
        process.communicate(b"\n")
        assert until(lambda: process.pid in seen.ends)
        assert str(program) in seen.build_ids(process.pid)


def test_a_child_that_executes_nothing_has_what_its_parent_has(tmp_path: Path) -> None:
    source = """#include <stdio.h>\n#include <sys/wait.h>\n#include <unistd.h>
    int main(void) {
        int child = fork();
        if (!child) _exit(0);
        waitpid(child, 0, 0);
        return printf("%d\\n", child) < 0;
    }"""
    forking = compiled(tmp_path / "forking", source)
    with watching(budget=1.0) as (seen, _):
        child = int(subprocess.run([forking], capture_output=True, check=True).stdout)
        assert until(lambda: child in seen.ends)
        found = seen.build_ids(child)
    assert found[str(forking)] == build_id(forking)
    assert any(path.endswith("libc.so.6") for path in found)


def test_a_library_that_is_loaded_later_is_told_of(tmp_path: Path) -> None:
    library = compiled(tmp_path / "later.so", "int later(void) { return 1; }", "-shared", "-fPIC")
    script = f"import ctypes, sys; sys.stdin.readline(); ctypes.CDLL('{library}'); print('loaded', flush=True); input()"
    with watching(budget=1.0) as (seen, _):
        process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        assert until(
            lambda: str(library) in {mapped_range.file.file for mapped_range in seen.ranges.get(process.pid, [])}
        )
        process.communicate(b"\n")
        assert seen.build_ids(process.pid)[str(library)] == build_id(library)


def test_a_file_that_was_deleted_while_it_ran_is_known_and_can_be_opened(program: Path) -> None:
    expected = build_id(program)
    with watching(budget=1.0) as (seen, _):
        process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        program.unlink()
        assert until(
            lambda: str(program) in {mapped_range.file.file for mapped_range in seen.ranges.get(process.pid, [])}
        )
        process.communicate(b"\n")
        assert seen.build_ids(process.pid)[str(program)] == expected
        [key] = {part.file_key for part in seen.ranges[process.pid] if part.file.file == str(program)}
        descriptor = seen.files.open(key)
        assert descriptor is not None
        assert identity.read_file(descriptor).build_id == expected
        os.close(descriptor)


def test_a_file_of_a_container_that_is_gone_is_known_and_can_be_opened(program: Path, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    script = f"mount -t tmpfs none {inside} && cp {program} {inside}/p && exec {inside}/p"
    with watching(budget=1.0) as (seen, _):
        process = subprocess.Popen(["unshare", "-m", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        if b"ready" not in process.stdout.readline():
            pytest.skip("no mount namespaces here")
        assert until(
            lambda: f"{inside}/p" in {mapped_range.file.file for mapped_range in seen.ranges.get(process.pid, [])}
        )
        process.communicate(b"\n")
        expected = build_id(program)
        assert seen.build_ids(process.pid)[f"{inside}/p"] == expected
        assert not (inside / "p").exists()
        [key] = {part.file_key for part in seen.ranges[process.pid] if part.file.file == f"{inside}/p"}
        descriptor = seen.files.open(key)
        assert descriptor is not None
        os.close(descriptor)


def test_when_rings_overflow_it_is_counted_and_processes_are_read_again(program: Path) -> None:
    with watching(budget=1.0, ring_bytes=4096) as (seen, watcher):
        with seen.mappings._lock:  # nobody reads the rings for now
            subprocess.run(["sh", "-c", "i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done"], check=True)
            process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert process.stdout is not None
            process.stdout.readline()

        def anything() -> bool:
            """The kernel says what a CPU's ring lost before its next record there."""
            for cpu in os.sched_getaffinity(0):
                subprocess.run(["taskset", "-c", str(cpu), "/bin/true"], check=True)
            return True

        def is_read_again() -> bool:
            """Each CPU's ring says by itself what it lost, and the process may have been on any of them."""
            anything()
            seen.mappings.notice(process.pid)
            return seen.build_ids(process.pid).get(str(program)) == build_id(program)

        assert until(lambda: anything() and watcher.lost > 0)
        assert until(is_read_again)
        process.communicate(b"\n")


def test_other_sources_are_answered_and_errors_in_them_are_survived() -> None:
    reading, writing = os.pipe()
    answers: list[bytes] = []

    def answer() -> None:
        answers.append(os.read(reading, 1))
        if len(answers) == 1:
            raise ValueError("an error")

    seen = Seen()
    watcher = Watcher(seen.mappings)
    watcher.add(reading, answer)
    watcher.start()
    os.write(writing, b"a")
    assert until(lambda: answers == [b"a"])
    os.write(writing, b"b")
    assert until(lambda: answers == [b"a", b"b"])
    watcher.close()
    os.close(reading)
    os.close(writing)


def test_processes_that_ran_before_are_read_in_advance() -> None:
    with watching() as (seen, _):
        assert seen.mappings.scan(PATIENCE_S) > 1
        assert os.getpid() in seen.ranges
        address = next(
            mapped_range.start
            for mapped_range in seen.ranges[os.getpid()]
            if mapped_range.file.file.endswith("libc.so.6")
        )
        found = seen.mappings.locate(os.getpid(), np.array([address], np.uint64))
        assert found.files[int(found.file[0])].file.endswith("libc.so.6")


def test_a_watcher_leaves_nothing_open() -> None:
    before = open_files(*EBPF)
    with watching():
        time.sleep(0.05)
    assert open_files(*EBPF) == before


def test_a_process_whose_first_thread_has_ended_lives_on_in_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>
    static void *other(void *nothing) { getchar(); exit(0); }
    int main(void) { pthread_t thread; pthread_create(&thread, 0, other, 0); pthread_exit(0); }"""
    leaderless = compiled(tmp_path / "leaderless", source)
    with watching(budget=1.0) as (seen, _):
        process = subprocess.Popen([leaderless], stdin=subprocess.PIPE)
        assert until(lambda: process.pid in seen.ends)
        seen.mappings.notify(process.pid)
        assert process.pid not in seen.ends
        assert str(leaderless) in {mapped_range.file.file for mapped_range in seen.ranges[process.pid]}
        process.communicate(b"\n")
        seen.mappings.notify(process.pid)
        monkeypatch.setattr(mappings, "_KEEP_S", -1.0)
        seen.mappings.expire()
        assert process.pid in seen.ends


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_cpus_that_come_and_go_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    online = tmp_path / "online"
    online.write_text(f"{first}\n")
    monkeypatch.setattr(perf_event, "ONLINE", online)
    monkeypatch.setattr(watch, "_FOLLOW_CPUS_S", 0.0)

    def run_on(cpu: int) -> int:
        process = subprocess.Popen(["taskset", "-c", str(cpu), "true"])
        process.wait()
        return process.pid

    def is_seen(pid: int) -> bool:
        return any(path.endswith("/true") for path in seen.build_ids(pid))

    def is_followed(cpu: int, followed: int) -> bool:
        """Events come in the order of their times: when the later process is seen, so is one on a followed CPU."""
        pid, later = run_on(cpu), run_on(followed)
        assert until(lambda: is_seen(later))
        return is_seen(pid)

    with watching(budget=1.0) as (seen, _):
        assert not is_followed(second, first)
        online.write_text(f"{first},{second},100000\n")
        assert until(lambda: is_followed(second, first))
        assert until(lambda: "only read from /proc" in caplog.text)
        online.write_text(f"{second}\n")
        assert until(lambda: not is_followed(first, second))


def test_while_it_rests_it_wakes_ten_times_a_second_and_misses_nothing(spinning: Path) -> None:
    with watching(budget=1.0) as (seen, watcher):
        watcher.resting = True
        assert until(lambda: not watcher.eager)
        script = f"i=0; while [ $i -lt 40 ]; do {spinning}; i=$((i+1)); done"
        output = subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout
        pids = [int(line) for line in output.split()]
        assert until(lambda: len(seen.build_ids(pids[-1])) >= 5)
        assert all(str(spinning) in seen.build_ids(pid) for pid in pids)
        watcher.resting = False
        assert until(lambda: watcher.eager)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_when_a_cpu_comes_online_processes_are_read_again(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they executed there before is not known."""
    cpus = sorted(os.sched_getaffinity(0))
    monkeypatch.setattr(watch, "_FOLLOW_CPUS_S", 0.05)
    monkeypatch.setattr(perf_ring, "online_cpus", lambda: set(cpus[:1]))
    with watching(budget=1.0) as (seen, _):
        command = ["taskset", "-c", str(cpus[1]), "sh", "-c", f"echo; read line; exec {program}"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        assert seen.mappings.notice(process.pid) is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()  # it executes the program; nobody reports that
        monkeypatch.setattr(perf_ring, "online_cpus", lambda: set(cpus))
        assert until(lambda: seen.mappings.notice(process.pid) and str(program) in seen.build_ids(process.pid))
        process.communicate(b"\n")
