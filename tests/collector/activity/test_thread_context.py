"""Thread contexts, from a process that publishes them to samples: real libraries, real processes, real eBPF."""

import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.activity.thread_context import VARIABLE, ThreadContexts, mapped_files
from collector.activity.tls_symbol import find
from collector.bpf.program import Image, image_of
from collector.bpf.sampler import Sampler

HERE = Path(__file__).parent
MODELS = {
    "descriptor": ["-mtls-dialect=gnu2"],
    "descriptor bound at link time": ["-mtls-dialect=gnu2", "-Wl,-Bsymbolic"],
    "old hash table": ["-mtls-dialect=gnu2", "-Wl,--hash-style=sysv"],
    "initial exec": ["-ftls-model=initial-exec"],
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


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Told:
    """What a sampler would have been told."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.offsets: dict[int, int] = {}
        self.contexts = ThreadContexts(self.set_context, self.offsets.__delitem__, self.clock)

    def set_context(self, pid: int, offset: int, image: Image) -> None:
        self.offsets[pid] = offset
        assert image == image_of(pid)


@pytest.fixture
def told() -> Told:
    return Told()


def build(folder: Path, source: str, name: str, *flags: str) -> Path:
    (folder / f"{name}.c").write_text(source)
    subprocess.run(["gcc", "-O1", *flags, f"{name}.c", "-o", name], cwd=folder, check=True)
    return folder / name


def library(folder: Path, *flags: str) -> Path:
    return build(folder, (HERE / "publisher.c").read_text(), "publisher.so", "-shared", "-fPIC", *flags)


def start(*command: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)


def line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout
    return process.stdout.readline().decode().strip()


def go_on(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin
    process.stdin.write(b"\n")


@pytest.mark.parametrize("model", MODELS)
def test_the_offset_of_a_loaded_library_is_the_one_the_process_computes_itself(
    told: Told, tmp_path: Path, model: str
) -> None:
    process = start(build(tmp_path, WHERE, "where"), library(tmp_path, *MODELS[model]))
    expected = int(line(process))
    told.contexts.observe([process.pid])
    process.communicate()
    assert told.offsets == {process.pid: expected}


@pytest.mark.parametrize("flags", [["-pie"], ["-no-pie"]])
def test_a_program_may_define_the_variable_itself(told: Told, tmp_path: Path, flags: list[str]) -> None:
    process = start(build(tmp_path, WHERE, "where", "-DOWN", "-rdynamic", *flags))
    expected = int(line(process))
    told.contexts.observe([process.pid])
    process.communicate()
    assert told.offsets == {process.pid: expected}


def test_a_variable_outside_of_the_static_block_is_left_alone(told: Told, tmp_path: Path) -> None:
    process = start(build(tmp_path, WHERE, "where"), library(tmp_path, "-mtls-dialect=gnu"))
    line(process)
    told.contexts.observe([process.pid])
    process.communicate()
    assert told.offsets == {}


def test_a_library_deleted_after_it_was_loaded_is_found(told: Told, tmp_path: Path) -> None:
    published = library(tmp_path, "-mtls-dialect=gnu2")
    process = start(build(tmp_path, WHERE, "where"), published)
    expected = int(line(process))
    published.unlink()
    told.contexts.observe([process.pid])
    process.communicate()
    assert told.offsets == {process.pid: expected}


@pytest.fixture
def switching(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Has not loaded its library yet."""
    program = build(tmp_path, (HERE / "switching.c").read_text(), "switching", "-pthread")
    process = start(program, library(tmp_path, "-mtls-dialect=gnu2"), "3", "1500")
    assert line(process) == "ready"
    yield process
    process.communicate()


def test_a_library_loaded_late_is_found_when_the_process_is_looked_at_again(
    told: Told, switching: subprocess.Popen[bytes]
) -> None:
    told.contexts.observe([switching.pid])
    assert told.offsets == {}
    go_on(switching)
    assert line(switching) == "loaded"
    told.clock.now += 0.5
    told.contexts.observe([switching.pid])
    assert told.offsets == {}  # not due
    told.clock.now += 0.6
    told.contexts.observe([switching.pid])
    assert told.contexts.publishing() == told.offsets
    assert switching.pid in told.offsets
    go_on(switching)


def test_a_process_that_shows_that_it_is_traced_is_looked_at_without_being_sampled(
    told: Told, switching: subprocess.Popen[bytes]
) -> None:
    for _ in range(6):
        told.clock.now += 30
        told.contexts.observe([switching.pid])
    go_on(switching)
    assert line(switching) == "loaded"
    told.clock.now += 2
    told.contexts.notice(switching.pid)
    told.contexts.observe()
    assert switching.pid in told.offsets
    go_on(switching)


def test_a_process_that_ended_is_forgotten(told: Told, tmp_path: Path) -> None:
    process = start(build(tmp_path, WHERE, "where"), library(tmp_path, "-mtls-dialect=gnu2"))
    line(process)
    told.contexts.observe([process.pid])
    assert told.offsets
    process.communicate()
    told.clock.now += 31
    told.contexts.observe([])
    assert told.offsets == {}
    told.contexts.observe([process.pid])
    assert told.contexts.publishing() == {}


def test_more_processes_than_are_remembered_are_no_error(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.activity.thread_context.MAX_PROCESSES", 3)
    monkeypatch.setattr("collector.activity.thread_context.MAX_FILES", 3)
    told.contexts.observe([os.getpid(), os.getppid(), 1, *range(1 << 22, (1 << 22) + 10)])
    told.contexts.notice(os.getpid())
    told.contexts.observe()
    assert set(told.offsets) <= {os.getpid(), os.getppid()}  # another test may have made this process a traced one


def test_a_look_at_a_process_whose_files_are_known_takes_well_under_a_millisecond(told: Told) -> None:
    told.contexts.observe([os.getpid()])
    started = os.times().user + os.times().system
    for _ in range(100):
        told.clock.now += 31
        told.contexts.observe([os.getpid()])
    files = len(mapped_files(os.getpid()))
    assert (os.times().user + os.times().system - started) / 100 < 0.001 + files * 5e-5


@pytest.mark.ebpf
def test_samples_of_threads_that_switch_contexts_carry_exactly_the_context_of_their_moment(
    switching: subprocess.Popen[bytes], loader: str
) -> None:
    go_on(switching)
    assert line(switching) == "loaded"
    sampler = Sampler(1999, loader)
    sampler.start()
    try:
        contexts = ThreadContexts(sampler.set_context, sampler.forget)
        contexts.observe([switching.pid])
        go_on(switching)
        stays: dict[int, list[tuple[int, ...]]] = {}
        while (text := line(switching)) != "end":
            tid, *stay = map(int, text.split())
            stays.setdefault(tid, []).append(tuple(stay))
        drain = sampler.drain()
    finally:
        sampler.close()
    in_stay = in_context = 0
    for tid, rows in stays.items():
        of_thread = np.flatnonzero(drain.tid == tid)
        number, begin, end = np.array(rows, np.int64).T
        times = drain.time_monotonic_ns[of_thread].astype(np.int64)
        at = np.searchsorted(begin, times) - 1
        inside = (at >= 0) & (times < end[at])
        in_stay += int(inside.sum())
        in_context += int((number[at[inside]] > 0).sum())
        for sample, expected in zip(of_thread[inside].tolist(), number[at[inside]].tolist(), strict=True):
            row = int(drain.context[sample]) - 1
            assert (row >= 0) == (expected > 0)
            if expected:
                assert drain.trace_ids[16 * row : 16 * row + 16] == struct.pack("=4I", tid, expected, tid, expected)
                assert drain.span_ids[8 * row : 8 * row + 8] == struct.pack("=2I", expected, tid)
    assert in_stay > 500
    assert in_context > in_stay / 2


@pytest.mark.ebpf
def test_no_context_is_read_after_a_process_executed_another_program(tmp_path: Path, loader: str) -> None:
    """The other program keeps something at the same offset that looks like a context."""
    decoy = build(tmp_path, EXECUTING, "decoy", "-rdynamic", "-DVARIABLE=something_else")
    process = start(build(tmp_path, EXECUTING, "first", "-rdynamic", "-DVARIABLE=otel_thread_ctx_v1"), decoy)
    line(process)
    sampler = Sampler(999, loader)
    sampler.start()
    try:
        contexts = ThreadContexts(sampler.set_context, sampler.forget)
        contexts.observe([process.pid])
        assert process.pid in contexts.publishing()
        go_on(process)
        executed_ns = int(line(process))
        process.communicate()
        drain = sampler.drain()
    finally:
        sampler.close()
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
    sampler = Sampler(999, loader)
    sampler.start()
    try:
        contexts = ThreadContexts(sampler.set_context, sampler.forget)
        contexts.observe([process.pid])
        go_on(process)
        child = max(int(text) for text in process.communicate()[0].split())
        drain = sampler.drain()
    finally:
        sampler.close()
    assert list(contexts.publishing()) == [process.pid]
    of_child = drain.pid == child
    assert of_child.sum() > 100
    assert (drain.context[of_child] > 0).mean() > 0.9


@given(st.binary(max_size=300))
def test_files_of_garbage_have_no_variable(data: bytes) -> None:
    assert find(lambda offset, size: data[offset : offset + size], VARIABLE) is None


@given(at=st.integers(0, 1 << 14), damage=st.binary(max_size=16))
def test_damaged_files_are_read_without_an_error(good: bytes, at: int, damage: bytes) -> None:
    at %= len(good)
    damaged = good[:at] + damage + good[at + len(damage) :]
    find(lambda offset, size: damaged[offset : offset + size], VARIABLE)


@given(length=st.integers(0, 1 << 14))
def test_files_cut_anywhere_are_read_without_an_error(good: bytes, length: int) -> None:
    find(lambda offset, size: good[:length][offset : offset + size], VARIABLE)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    data = library(tmp_path_factory.mktemp("good"), "-mtls-dialect=gnu2").read_bytes()
    assert find(lambda offset, size: data[offset : offset + size], VARIABLE)
    return data
