"""Thread contexts, from a process that publishes them to samples: real libraries, real processes, real eBPF."""

import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.activity import thread_context
from collector.activity.context_finder import VARIABLE
from collector.activity.tls_symbol import read_file
from collector.bpf.program import TlsPlace
from collector.bpf.sampler import Sampler, SamplerError
from collector.checks.publishers import thread_contexts
from collector.checks.row import CheckMark
from collector.elf.reader import bytes_reader
from collector.processes.mappings import ProcessMappings
from collector.processes.watch import Watcher
from tests.collector.activity.publishing import Told, counted, go_on, line, sampled, start
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
DESCRIPTOR, GET_ADDR = (
    f"-mtls-dialect={name}" for name in (("desc", "trad") if platform.machine() == "aarch64" else ("gnu2", "gnu"))
)
LARGE = "-DTLS_BYTES=100000"  # more than the room for static TLS that a process has left
MODELS = {
    "descriptor": [DESCRIPTOR],
    "descriptor bound at link time": [DESCRIPTOR, "-Wl,-Bsymbolic"],
    "old hash table": [DESCRIPTOR, "-Wl,--hash-style=sysv"],
    "initial exec": ["-ftls-model=initial-exec"],
}
DYNAMIC = {
    "large, descriptor": [DESCRIPTOR, LARGE],
    "large, descriptor bound at link time": [DESCRIPTOR, "-Wl,-Bsymbolic", LARGE],
    "large, __tls_get_addr": [GET_ADDR, LARGE],
    "large, __tls_get_addr bound at link time": [GET_ADDR, "-Wl,-Bsymbolic", LARGE],
    "small, __tls_get_addr": [GET_ADDR],
}
WHERE = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef OWN
__thread char before[24] = "initialized";
__thread void *otel_thread_ctx_v1;
#endif
int main(int count, char **arguments) {
	void *own = dlopen(count > 1 ? arguments[1] : NULL, RTLD_NOW);
	printf("%ld\n", (long)((char *)dlsym(own, "otel_thread_ctx_v1") - (char *)__builtin_thread_pointer()));
	printf("%ld\n", (long)__builtin_thread_pointer());
	fflush(stdout);
	return getchar();
}
"""

EXECUTING = r"""
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
__thread void *VARIABLE;
static long long clock_ns(clockid_t id) {
	struct timespec t;
	clock_gettime(id, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}
int main(int count, char **arguments) {
	static unsigned char record[28] = "0123456789abcdefghijklmn\1";
	VARIABLE = record;
	if (count > 1) {
		puts("ready");
		fflush(stdout);
		getchar();
	} else {
		printf("%lld\n", clock_ns(CLOCK_MONOTONIC));
		fflush(stdout);
	}
	if (count > 2) {
		printf("%d\n", fork());
		fflush(stdout);
		wait(NULL); /* a child whose parent ended has another parent */
	}
	while (clock_ns(CLOCK_PROCESS_CPUTIME_ID) < (count > 1 ? 300000000 : 600000000))
		;
	if (count > 1)
		execl(arguments[1], arguments[1], NULL);
	return 0;
}
"""


def build(folder: Path, source: str, name: str, *flags: str, compiler: str = "gcc") -> Path:
    (folder / f"{name}.c").write_text(source)
    subprocess.run([compiler, "-O1", *flags, f"{name}.c", "-o", name], cwd=folder, check=True)
    return folder / name


def library(folder: Path, *flags: str, compiler: str = "gcc") -> Path:
    source = (HERE / "publisher.c").read_text()
    return build(folder, source, "publisher.so", "-shared", "-fPIC", *flags, compiler=compiler)


@pytest.mark.parametrize("model", MODELS)
def test_the_offset_of_a_loaded_library_is_the_one_the_process_computes_itself(
    told: Told, tmp_path: Path, model: str
) -> None:
    process = start(build(tmp_path, WHERE, "where"), library(tmp_path, *MODELS[model]))
    expected = int(line(process))
    told.look_at(process.pid)
    assert told.wait_for(process.pid) == TlsPlace(expected)
    process.communicate()


@pytest.mark.parametrize("compiler", ["gcc", "musl-gcc"])
@pytest.mark.parametrize("model", DYNAMIC)
def test_a_variable_outside_of_the_static_block_is_found_through_the_dtv(
    told: Told, tmp_path: Path, model: str, compiler: str
) -> None:
    published = library(tmp_path, *DYNAMIC[model], compiler=compiler)
    process = start(build(tmp_path, WHERE, "where", compiler=compiler), published)
    expected, pointer = int(line(process)), int(line(process))
    told.look_at(process.pid)
    place = told.wait_for(process.pid)
    assert place.module > 0
    assert place.entry_bytes == {"gcc": 16, "musl-gcc": 8}[compiler]
    block = word(process.pid, word(process.pid, pointer + place.dtv) + place.module * place.entry_bytes)
    assert block + place.offset == pointer + expected
    process.communicate()


def word(pid: int, address: int) -> int:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        return int.from_bytes(os.pread(memory.fileno(), 8, address), "little")


@pytest.mark.parametrize("flags", [["-pie"], ["-no-pie"]])
def test_a_program_may_define_the_variable_itself(told: Told, tmp_path: Path, flags: list[str]) -> None:
    process = start(build(tmp_path, WHERE, "where", "-DOWN", "-rdynamic", *flags))
    expected = int(line(process))
    told.look_at(process.pid)
    assert told.wait_for(process.pid) == TlsPlace(expected)
    process.communicate()


def test_a_library_deleted_after_it_was_loaded_is_found(told: Told, tmp_path: Path) -> None:
    published = library(tmp_path, DESCRIPTOR)
    process = start(build(tmp_path, WHERE, "where"), published)
    expected = int(line(process))
    published.unlink()
    told.look_at(process.pid)
    assert told.wait_for(process.pid) == TlsPlace(expected)
    process.communicate()


@contextmanager
def switching(
    folder: Path, *flags: str, libraries: int = 0, switches: int = 700, compiler: str = "gcc"
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has not loaded its library yet. It loads so many others with thread-local variables before."""
    program = build(folder, (HERE / "switching.c").read_text(), "switching", "-pthread", compiler=compiler)
    others = [folder / f"{i}.so" for i in range(libraries)]
    if others:
        built = build(folder, "__thread long other; long *f(void) { return &other; }", "other.so", "-shared", "-fPIC")
        for path in others:
            shutil.copy(built, path)
    process = start(program, library(folder, *flags, compiler=compiler), "3", str(switches), *others)
    assert line(process) == "ready"
    yield process
    process.communicate()


@pytest.mark.ebpf
@pytest.mark.alone  # it is about time
def test_a_library_loaded_late_is_read_within_200_ms_of_the_moment_it_is_loaded(told: Told, tmp_path: Path) -> None:
    watcher = Watcher(ProcessMappings(told.files, [told.contexts]))
    watcher.start()
    took = []
    try:
        for _ in range(3):  # the least counts: a virtual CPU may be away for longer
            with switching(tmp_path, DESCRIPTOR, LARGE) as process:
                go_on(process)
                assert line(process) == "loaded"
                loaded = time.monotonic()
                told.wait_for(process.pid)
                took.append(told.at[process.pid] - loaded)
                go_on(process)
    finally:
        watcher.close()
    assert min(took) < 0.2


UNLINKED = """
import ctypes, mmap, sys
file = open(sys.argv[1], "rb")
mapped = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC, offset=4096)  # its code
print("mapped", flush=True)
input()
ctypes.CDLL(sys.argv[1])
print("linked", flush=True)
input()
"""


def test_processes_whose_contexts_cannot_be_read_are_counted_and_named_once_and_tried_again(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They map the library without linking it."""
    monkeypatch.setattr(thread_context, "LINKED_S", 0.02)
    monkeypatch.setattr(thread_context, "_LAST_PAUSE_S", 0.05)
    published = library(tmp_path, DESCRIPTOR, LARGE)
    processes = [start(sys.executable, "-c", UNLINKED, published) for _ in range(2)]
    for process in processes:
        assert line(process) == "mapped"
        told.look_at(process.pid)
    wait_until(lambda: counted("unreadable") == 2)
    assert not told.places
    assert [publisher.place for publisher in told.contexts.publishers().values()] == [None, None]
    warnings = [record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage()]
    assert len(warnings) == 1
    assert f"process {processes[0].pid} (python" in warnings[0] or f"process {processes[1].pid} (python" in warnings[0]
    assert str(published) in warnings[0]
    wait_until(lambda: thread_contexts().mark is CheckMark.LIMITED)  # it looks at others, too, and not for long
    row = thread_contexts()
    assert all(f"{process.pid} (python" in row.says for process in processes)
    for process in processes:
        go_on(process)
        assert line(process) == "linked"
        told.look_at(process.pid)
        assert told.wait_for(process.pid).module > 0
    wait_until(lambda: (counted("read"), counted("unreadable")) == (2, 0))
    for process in processes:
        told.contexts.ended(process.pid)
        process.communicate(b"\n")
    wait_until(lambda: not told.places and counted("read") == 0)


def test_a_process_for_which_the_kernel_has_no_room_counts_as_unreadable(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise SamplerError("the table is full")

    monkeypatch.setattr(told.contexts, "_set_context", refuse)
    monkeypatch.setattr(thread_context, "LINKED_S", 0.0)
    process = start(build(tmp_path, WHERE, "where"), library(tmp_path, DESCRIPTOR))
    line(process)
    told.look_at(process.pid)
    wait_until(lambda: process.pid in told.contexts.publishers())
    assert told.contexts.publishers()[process.pid].why == "the table is full"
    process.communicate()


def test_processes_are_looked_at_only_for_files_that_are_new_or_have_the_variable(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    find = told.contexts._finder.find
    monkeypatch.setattr(told.contexts._finder, "find", lambda pid, ranges: (looks.append(pid), find(pid, ranges))[1])
    first, second = (start(build(tmp_path, WHERE, "where")) for _ in range(2))
    publishing = start(build(tmp_path, WHERE, "where"), library(tmp_path, DESCRIPTOR))
    for process in (first, second, publishing):
        line(process)
    told.look_at(first.pid)
    wait_until(lambda: looks and told.contexts._looking is None)
    for process in (first, second, publishing):
        told.look_at(process.pid)
    told.wait_for(publishing.pid)
    assert looks == [first.pid, publishing.pid]
    for process in (first, second, publishing):
        process.communicate()


DTV = {
    "descriptor in static TLS": ([DESCRIPTOR], 0, "gcc"),
    "descriptor": ([DESCRIPTOR, LARGE], 0, "gcc"),
    "__tls_get_addr": ([GET_ADDR, LARGE], 0, "gcc"),
    "many libraries": ([DESCRIPTOR, LARGE], 40, "gcc"),
    "musl": ([DESCRIPTOR], 0, "musl-gcc"),
}


# Both loaders load one source: what it does is tested with one of them for every kind, that it does it with the other
# for one kind. `make soak` has them all.
WITH_BCC = [pytest.param("bcc", kind, marks=() if kind == "descriptor" else pytest.mark.soak) for kind in DTV]


@pytest.mark.ebpf
@pytest.mark.parametrize(("loader", "kind"), [*(("libbpf", kind) for kind in DTV), *WITH_BCC], indirect=["loader"])
def test_samples_of_threads_that_switch_contexts_carry_exactly_the_context_of_their_moment(
    tmp_path: Path, loader: str, kind: str
) -> None:
    flags, libraries, compiler = DTV[kind]
    with switching(tmp_path, *flags, libraries=libraries, compiler=compiler) as process:
        go_on(process)
        assert line(process) == "loaded"
        with sampled(3999, loader, process.pid) as sampler:
            expected, shown = contexts_of_moments(process, sampler)
    assert shown == expected
    assert len(expected) > 200
    assert sum(map(bool, expected)) > len(expected) / 2


def contexts_of_moments(process: subprocess.Popen[bytes], sampler: Sampler) -> tuple[list[bytes], list[bytes]]:
    """Lets a process of `switching` work that has loaded its library. Returns the context in which each sample was
    taken, and the one that it shows: trace ID and span ID, or nothing."""
    go_on(process)
    stays: dict[int, list[tuple[int, ...]]] = {}
    while (text := line(process)) != "end":
        tid, *stay = map(int, text.split())
        stays.setdefault(tid, []).append(tuple(stay))
    drain = sampler.drain()
    expected, shown = [], []
    for tid, rows in stays.items():
        of_thread = np.flatnonzero(drain.tid == tid)
        number, begin, end = np.array(rows, np.int64).T
        times = drain.time_monotonic_ns[of_thread].astype(np.int64)
        at = np.searchsorted(begin, times) - 1
        inside = (at >= 0) & (times < end[at])
        for sample, n in zip(of_thread[inside].tolist(), number[at[inside]].tolist(), strict=True):
            row = int(drain.context[sample]) - 1
            expected.append(struct.pack("=6I", tid, n, tid, n, n, tid) if n else b"")
            ids = drain.trace_ids[16 * row : 16 * row + 16] + drain.span_ids[8 * row : 8 * row + 8]
            shown.append(ids if row >= 0 else b"")
    return expected, shown


@pytest.mark.ebpf
def test_no_context_is_read_after_a_process_executed_another_program(tmp_path: Path, loader: str) -> None:
    """The other program keeps something at the same offset that looks like a context."""
    decoy = build(tmp_path, EXECUTING, "decoy", "-rdynamic", "-DVARIABLE=something_else")
    process = start(build(tmp_path, EXECUTING, "first", "-rdynamic", "-DVARIABLE=otel_thread_ctx_v1"), decoy)
    line(process)
    with sampled(999, loader, process.pid) as sampler:
        go_on(process)
        executed_ns = int(line(process))
        while process.poll() is None:
            sampler.poll()  # on a busy machine this takes longer than the kernel's buffers last
            time.sleep(0.1)
        process.communicate()
        drain = sampler.drain()
    mine = drain.pid == process.pid
    shown, after = drain.context[mine] > 0, drain.time_monotonic_ns[mine] > executed_ns
    assert shown[~after].sum() > 100
    assert after.sum() > 100
    assert not shown[after].any()


@pytest.mark.ebpf
def test_a_forked_child_shows_its_context_before_it_was_looked_at(tmp_path: Path, loader: str) -> None:
    program = build(tmp_path, EXECUTING, "first", "-rdynamic", "-DVARIABLE=otel_thread_ctx_v1")
    process = start(program, "/bin/true", "fork")
    line(process)
    with sampled(999, loader, process.pid) as sampler:
        go_on(process)
        child = max(int(text) for text in process.communicate()[0].split())
        drain = sampler.drain()
    of_child = drain.pid == child
    assert of_child.sum() > 100
    assert (drain.context[of_child] > 0).mean() > 0.9


@given(st.binary(max_size=300))
def test_files_of_garbage_have_no_variable(data: bytes) -> None:
    assert read_file(bytes_reader(data), VARIABLE).symbol is None


@given(at=st.integers(0, 1 << 14), damage=st.binary(max_size=16))
def test_damaged_files_are_read_without_an_error(good: bytes, at: int, damage: bytes) -> None:
    at %= len(good)
    damaged = good[:at] + damage + good[at + len(damage) :]
    read_file(bytes_reader(damaged), VARIABLE)


@pytest.mark.parametrize("value", [1 << 31, 1 << 63, (1 << 64) - 1])
def test_a_variable_where_no_thread_has_one_is_none(good: bytes, value: int) -> None:
    symbol = re.compile(rb"(\x16\0..)\0{8}(\x08\0{7})", re.DOTALL)  # st_info, st_other, st_shndx; st_value; st_size
    changed, count = symbol.subn(lambda found: found[1] + struct.pack("<Q", value) + found[2], good)
    assert count
    assert read_file(bytes_reader(changed), VARIABLE).symbol is None


@given(length=st.integers(0, 1 << 14))
def test_files_cut_anywhere_are_read_without_an_error(good: bytes, length: int) -> None:
    read_file(bytes_reader(good[:length]), VARIABLE)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    data = library(tmp_path_factory.mktemp("good"), DESCRIPTOR).read_bytes()
    assert read_file(bytes_reader(data), VARIABLE).symbol
    return data
