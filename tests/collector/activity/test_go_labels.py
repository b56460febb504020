"""The pprof labels of Go programs, from goroutines to samples: real programs, real eBPF."""

import errno
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.activity import context_finder, thread_context
from collector.activity.go_labels import read_go
from collector.bpf.program import ContextKind
from collector.bpf.samples import DrainedSamples
from collector.elf.reader import bytes_reader
from collector.processes.mapped_files import MappedFile
from collector.processes.mapped_ranges import MappedRange
from icestream.v1.common_pb2 import Mapping
from tests.collector.activity.publishing import Told, contexts, counted, line, samples_until_end, span_names, start
from tests.go import needs_go
from tests.waiting import wait_until

pytestmark = [needs_go, pytest.mark.slow]

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
SPINS = {
    "both": (TRACE, SPAN),
    "last": (TRACE[:-1] + "d", "00f067aa0ba902b7"),
    "short": ("0" * 16 + "a3ce929d0e0e4736", "0" * 16),
    "inherited": (TRACE[:-1] + "e", "0" * 16),
    "left": None,
    "wrong": None,
    "span": None,
    "named": (TRACE[:-1] + "f", SPAN),
    "endpoint": None,
    "long": None,
    "noText": None,
}
"""Functions of the program, and the trace ID and span ID of the goroutine that is in them."""
NAMES = {"named": "GET /checkout", "endpoint": "GET /user/{id}", "long": "x" + "é" * 63}
"""The name of the span of the goroutine, by function."""

PROGRAM = """// Goroutines with labels, each of which spins in a function of its own, on two threads at least.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	trace    = "TRACE"
	leastCPU = 700 * time.Millisecond
	turns    = 1000 // on each of two threads
)

// The goroutines that have not worked enough. None ends before: the last one would stay on its thread.
var lacking int32 = GOROUTINES

FUNCTIONS
func usedCPU() time.Duration {
	var used syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func work(spin func(int) int) {
	onThread := map[int]int{}
	for enough := 0; atomic.LoadInt32(&lacking) > 0 || usedCPU() < leastCPU; {
		for turn := 0; turn < 10; turn++ {
			spin(25_000)
			thread := syscall.Gettid()
			if onThread[thread]++; onThread[thread] == turns {
				if enough++; enough == 2 {
					atomic.AddInt32(&lacking, -1)
				}
			}
			runtime.Gosched()
		}
	}
}

func do(f func(), labels ...string) {
	pprof.Do(context.Background(), pprof.Labels(labels...), func(context.Context) { f() })
}

func main() {
	runtime.GOMAXPROCS(2)
	input := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	input.ReadString('\\n')
	many := []string{"trace_id", trace[:31] + "D", "span_id", "00F067AA0BA902B7"}
	for i := 2; i < MANY; i++ {
		many = append(many, fmt.Sprintf("label %02d", i), "value")
	}
	goroutines := []func(){
		func() { do(func() { work(both) }, "trace_id", trace, "span_id", "SPAN") },
		func() { do(func() { work(last) }, many...) },
		func() { do(func() { work(short) }, "trace_id", "A3CE929D0E0E4736", "span_id", "not an ID") },
		func() {
			done := make(chan bool)
			do(func() { go func() { work(inherited); done <- true }() }, "trace_id", trace[:31]+"e", "user", "4711")
			<-done
		},
		func() { do(func() {}, "trace_id", trace); work(left) },
		func() { do(func() { work(wrong) }, "trace_id", trace[:31]+"g", "span_id", "SPAN") },
		func() { do(func() { work(span) }, "span_id", "SPAN") },
		func() {
			do(func() { work(named) }, "trace_id", trace[:31]+"f", "span_id", "SPAN", "span_name", "GET /checkout")
		},
		func() { // as dd-trace-go sets them
			labels := []string{"span id", "4711", "local root span id", "42", "trace endpoint", "GET /user/{id}"}
			do(func() { work(endpoint) }, labels...)
		},
		func() { do(func() { work(long) }, "span_name", "x"+strings.Repeat("é", 70)) },
		func() { do(func() { work(noText) }, "span_name", "\\xff\\x00\\xfe") },
	}
	ended := make(chan bool)
	for _, run := range goroutines {
		run := run
		go func() { run(); ended <- true }()
	}
	for range goroutines {
		<-ended
	}
	fmt.Println("end")
	input.ReadString('\\n')
}
"""
SPIN = """//go:noinline
func NAME(n int) (sum int) {
	for i := 0; i < n; i++ {
		sum += i % 7
	}
	return
}

"""


OLDER = ("go1.18.10", "go1.19.13", "go1.20.14", "go1.21.13", "go1.22.12", "go1.23.12")
"""Before Go 1.24, labels are a map."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("go"), CGO_ENABLED="0")


def build(folder: Path, *flags: str, version: str = "", labels: int = 16, **environ: str) -> Path:
    """`version`: of Go, by default the one that is installed. The goroutine `last` has so many labels."""
    source = PROGRAM.replace("TRACE", TRACE).replace("SPAN", SPAN).replace("MANY", str(labels))
    source = source.replace("GOROUTINES", str(len(SPINS)))
    source = source.replace("FUNCTIONS\n", "".join(SPIN.replace("NAME", name) for name in SPINS))
    (folder / "main.go").write_text(source)
    (folder / "go.mod").write_text(f"module example.org/shop\n\ngo {'1.18' if version else '1.24'}\n")
    environ |= {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": version or "local"}
    subprocess.run(["go", "build", "-o", "program", *flags, "."], cwd=folder, env=os.environ | environ, check=True)
    return folder / "program"


# Both loaders load one source; that the other finds the threads' variables is in test_thread_context.py.
@pytest.mark.ebpf
@pytest.mark.parametrize("loader", ["libbpf", pytest.param("bcc", marks=pytest.mark.soak)], indirect=True)
def test_samples_of_goroutines_that_move_between_threads_carry_the_trace_and_span_name_of_their_labels(
    program: Path, loader: str
) -> None:
    assert_read(program, loader)


@pytest.mark.ebpf
@pytest.mark.soak  # Go downloads each version, and builds all of its libraries
@pytest.mark.parametrize("labels", [8, 13])
@pytest.mark.parametrize("version", OLDER)
def test_labels_of_older_versions_of_go_are_read_from_their_maps(tmp_path: Path, version: str, labels: int) -> None:
    """A map has one bucket for up to 8 labels. 13 are in two, since Go 1.21 in four, and a full one gets another."""
    assert_read(build(tmp_path, version=version, labels=labels, CGO_ENABLED="0"), "libbpf")


def test_labels_of_older_versions_of_go_are_maps(good: bytes) -> None:
    version = re.search(rb"go1\.(\d\d)", good)
    assert version is not None
    assert int(version[1]) >= 24
    for minor in range(18, 24):
        older = read_go(bytes_reader(good.replace(version[0], b"go1.%d" % minor)))
        assert older
        assert older.place
        assert older.place.kind == ContextKind.GO_LABEL_MAP
        assert older.place.go.goroutine == 192
    oldest = read_go(bytes_reader(good.replace(version[0], b"go1.17")))
    assert oldest
    assert "only those of releases of Go 1.18 to 1." in oldest.why


def assert_read(program: Path, loader: str) -> None:
    """Runs the program, and compares the context of each sample with the labels of the goroutine that it is of."""
    process = start(program)
    assert line(process) == "ready"
    drain = samples_until_end(process, loader)
    traces = [None, *contexts(drain)]
    spinning = leaf_functions(program, drain, process.pid)
    for name, expected in SPINS.items():
        mine = np.flatnonzero(spinning == name)
        found = [traces[context] for context in drain.context[mine].tolist()]
        assert len(found) > 30
        assert len(np.unique(drain.tid[mine])) > 1
        assert set(found) <= {expected, None}
        assert found.count(expected) >= 0.99 * len(found)
        names = span_names(drain, mine)
        assert set(names) <= {NAMES.get(name, ""), ""}
        assert names.count(NAMES.get(name, "")) >= 0.99 * len(names)


def leaf_functions(program: Path, drain: DrainedSamples, pid: int) -> np.ndarray:
    """The name of the function that each sample interrupted; "" if it is none of SPINS, or the kernel was running."""
    first = np.cumsum(drain.stack_depth) - drain.stack_depth
    leaf = drain.frames[np.minimum(first, len(drain.frames) - 1)][drain.stack]
    user = (drain.pid == pid) & (drain.stack_kernel_depth[drain.stack] == 0) & (drain.stack_depth[drain.stack] > 0)
    names = np.full(len(leaf), "", object)
    for address, size, _, name in table(["nm", "-S", program]):
        function = name.removeprefix("main.")
        if function in SPINS:
            names[user & (leaf >= int(address, 16)) & (leaf < int(address, 16) + int(size, 16))] = function
    return names


def table(command: Sequence[str | Path]) -> list[list[str]]:
    """Lines of four words."""
    lines = subprocess.check_output(command, text=True).splitlines()
    return [words for text in lines if len(words := text.split()) == 4]


def test_a_program_of_an_unknown_version_of_go_is_not_read_but_counted_and_named(
    program: Path, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(thread_context, "LINKED_S", 0.0)
    unknown = changed(program, tmp_path / "unknown", b"go1.", b"go9.")
    process = start(unknown)
    line(process)
    told.look_at(process.pid)
    wait_until(lambda: counted("unreadable") == 1 and "cannot be read" in caplog.text)
    assert process.pid not in told.places
    assert str(unknown) in caplog.text
    assert "go9." in caplog.text
    process.kill()
    process.communicate()


def test_a_program_that_sets_no_labels_is_not_counted(
    program: Path, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_context, "LINKED_S", 0.0)
    process = start(changed(program, tmp_path / "other", b"runtime_setProfLabel", b"runtime_getProfLabel"))
    line(process)
    told.look_at(process.pid)
    wait_until(lambda: told.contexts._finder._files and told.contexts._looking is None)
    assert not told.contexts.publishers()
    process.kill()
    process.communicate()


def changed(program: Path, path: Path, old: bytes, new: bytes) -> Path:
    """A copy that differs so."""
    path.write_bytes(program.read_bytes().replace(old, new))
    path.chmod(0o755)
    return path


def test_where_the_c_library_has_thread_local_variables_the_symbols_tell_go_s_own(tmp_path: Path) -> None:
    static = build(tmp_path, "-ldflags=-linkmode external -extldflags -static", CGO_ENABLED="1")
    (value,) = [
        int(words[1], 16)
        for text in subprocess.check_output(["readelf", "-sW", static], text=True).splitlines()
        if (words := text.split())[-1:] == ["runtime.tlsg"]
    ]
    (size,) = [
        int(words[5], 16)
        for text in subprocess.check_output(["readelf", "-lW", static], text=True).splitlines()
        if (words := text.split())[:1] == ["TLS"]
    ]
    whole = read_go(bytes_reader(static.read_bytes()))
    assert whole
    assert whole.place
    assert whole.place.offset == value - -(-size // 8) * 8 < -8
    subprocess.run(["strip", static], check=True)
    stripped = read_go(bytes_reader(static.read_bytes()))
    assert stripped
    assert stripped.place is None
    assert "symbols are missing" in stripped.why


def test_a_program_whose_memory_may_not_be_read_is_named(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is there, so it counts as one that cannot be read, not as one that is gone."""

    def refused(pid: int) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(context_finder, "_entry", refused)
    finder = context_finder.ContextFinder(lambda build_id: os.open(program, os.O_RDONLY))
    mapped = MappedRange(4096, 8192, 0, MappedFile(Mapping.FILE, "go:1", str(program)), "go:1", False, None)
    found = finder.find(os.getpid(), [mapped])
    assert found
    assert (found.path, found.place) == (str(program), None)
    assert "cannot be read: Permission denied" in found.why


def test_a_file_with_very_many_sections_is_not_searched(good: bytes) -> None:
    """Reading their names would cost 100 ms, and anybody can make such files."""
    read: list[int] = []

    def counting(offset: int, size: int) -> bytes:
        read.append(size)
        return data[offset : offset + size]

    data = good[:60] + (60_000).to_bytes(2, "little") + good[62:] + bytes(64 * 60_000)
    assert read_go(counting) is None
    assert sum(read) < 100_000


@given(data=st.data())
def test_damaged_programs_are_read_without_an_error(good: bytes, data: st.DataObject) -> None:
    where = st.one_of(st.integers(0, 1 << 10), st.sampled_from(interesting(good)), st.integers(0, len(good)))
    at, damage = data.draw(where), data.draw(st.binary(max_size=40))
    read_go(bytes_reader(good[:at] + damage + good[at + len(damage) :]))
    read_go(bytes_reader(good[:at]))


@pytest.fixture(scope="module")
def good(program: Path) -> bytes:
    data = program.read_bytes()
    read = read_go(bytes_reader(data))
    assert read
    assert read.place
    return data


def interesting(program: bytes) -> list[int]:
    """Where the version is, and in the table of sections."""
    info, sections = program.index(b"\xff Go buildinf:"), int.from_bytes(program[40:48], "little")
    return [*range(info, info + 40), *range(sections, sections + 64 * 25, 8)]
