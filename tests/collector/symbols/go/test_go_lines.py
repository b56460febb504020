"""Stripped Go programs: functions, files, lines and inlined calls as the debug information and the program have
them."""

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from symbolic.symcache import SymCache

from collector.elf import identity
from collector.elf.gopclntab import GO_1_18
from collector.elf.reader import bytes_reader, file_reader
from collector.elf.sections import find, read_sections
from collector.symbols.file_names import best, make
from collector.symbols.functions import functions
from collector.symbols.go.inlined import MAX_DEPTH
from collector.symbols.go.lines import go_symcache
from collector.symbols.name_kinds import DEBUG_INFO, LINE_TABLE, NOTHING
from tests.examples import examples
from tests.go import needs_go

PROGRAM = r"""package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

//go:noinline
func work(n int) int {
	s := 0
	for i := 0; i < n; i++ {
		s += i % 7
	}
	return s
}

type Cart struct{ items []string }

//go:noinline
func (c *Cart) Total() int {
	return len(strings.Join(c.items, ",")) + work(len(os.Args)*10)
}

//go:noinline
func trace() {
	callers := make([]uintptr, 20)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	for frame, more := frames.Next(); more; frame, more = frames.Next() {
		fmt.Println(frame.PC, frame.Function, frame.File, frame.Line)
	}
}

func price(n int) int {
	trace()
	return n + 1
}

func discount(n int) int {
	n *= 2
	return price(n) - 1
}

//go:noinline
func checkout(n int) int {
	return discount(n) + 3
}

func main() {
	maps, _ := os.ReadFile("/proc/self/maps")
	path, _ := os.Executable()
	for _, line := range strings.Split(string(maps), "\n") {
		if strings.HasSuffix(line, path) {
			fmt.Println(line[:strings.IndexByte(line, '-')])
			break
		}
	}
	checkout(len(os.Args))
	c := &Cart{items: os.Args}
	f := func() int { return c.Total() }
	os.Exit(f() & 1)
}
"""

CALLS = ["main.price", "main.discount", "main.checkout", "main.main", "runtime.main"]
"""How the program prints what calls main.trace. The first two are inlined into the third."""

MODULE_TEXT = 8 * 22
"""Where runtime.moduledata has the address that functions count from."""

pytestmark = [needs_go, pytest.mark.slow]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("go"))


def written(folder: Path) -> Path:
    """The folder with the program's source."""
    (folder / "main.go").write_text(PROGRAM)
    (folder / "go.mod").write_text("module example.org/shop\n")
    return folder


def built(source: Path, name: str, *flags: str, cgo: bool = False) -> Path:
    environ = os.environ | {"GOFLAGS": "-mod=mod", "CGO_ENABLED": str(int(cgo)), "GOTOOLCHAIN": "local"}
    subprocess.run(["go", "build", *flags, "-o", name, "."], cwd=source, env=environ, check=True)
    return source / name


@pytest.fixture(scope="module")
def whole(source: Path) -> Path:
    return built(source, "program")


@pytest.fixture(scope="module")
def stripped(whole: Path) -> Path:
    path = whole.with_name("stripped")
    subprocess.run(["strip", whole, "-o", path], check=True)
    return path


def table_offset(path: Path) -> int:
    """Where in the file the table begins."""
    lines = subprocess.check_output(["readelf", "-SW", path], text=True).splitlines()
    return next(int(line.split("PROGBITS")[1].split()[1], 16) for line in lines if "gopclntab" in line)


def opened(path: Path) -> tuple[int, SymCache, int]:
    """The kind of its best names, its SymCache and load address."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        version = best(descriptor)
        made = make(descriptor, version)
    finally:
        os.close(descriptor)
    return version, SymCache.from_bytes(made.symcache), made.load_address


def lines(found: SymCache, address: int) -> list[tuple[str, str | None, int]]:
    """The function, file and line of each call at an address, innermost first."""
    return [(line.symbol.removesuffix(".abi0"), line.full_path, line.line) for line in found.lookup(address)]


def test_functions_lines_and_inlined_calls_of_a_stripped_program(whole: Path, stripped: Path) -> None:
    version, found, base = opened(stripped)
    true_version, true, true_base = opened(whole)
    assert (version, true_version) == (LINE_TABLE, DEBUG_INFO)
    descriptor = os.open(whole, os.O_RDONLY)
    ranges = [
        r for r in functions(file_reader(descriptor)) if r.name.startswith(("main.", "strings.", "runtime.ma", "os."))
    ]
    os.close(descriptor)
    assert {"main.work", "main.(*Cart).Total", "main.main"} <= {code_range.name for code_range in ranges}
    compared: Counter[int] = Counter()
    for function in ranges:
        for address in range(function.start, function.end):
            names, truth = lines(found, address - base), lines(true, address - true_base)
            if not names:  # between functions, where the symbol table counts what fills the gap
                continue
            assert names[-1][0] == function.name.removesuffix(".abi0")
            if truth and truth[0][2]:  # the compiler's own functions have lines in Go's table only
                assert names == truth
                compared[len(names)] += 1
    assert min(compared[depth] for depth in (1, 2, 3)) > 100


@pytest.mark.parametrize("flags", [(), pytest.param(("-buildmode=pie",), marks=pytest.mark.soak)])
def test_inlined_calls_are_those_that_the_program_prints(source: Path, flags: tuple[str, ...]) -> None:
    check_calls(built(source, "stripped-by-go", "-ldflags=-s -w", *flags))


def check_calls(program: Path) -> None:
    """What the program prints of its calls is what its names say."""
    run = subprocess.run([program], capture_output=True, text=True, check=False)
    begin, *printed = run.stdout.splitlines()
    rows = [line.split(" ") for line in printed]
    addresses = [int(row[0]) - int(begin, 16) for row in rows]
    frames = [(name, file, int(line)) for _, name, file, line in rows]
    assert [name for name, _, _ in frames] == CALLS
    _, found, _ = opened(program)
    assert lines(found, addresses[0]) == frames[:3]  # one address in main.checkout, where all three are
    assert lines(found, addresses[3]) == frames[3:4]


def test_older_go_has_no_inlined_calls(stripped: Path) -> None:
    """Its functions keep their names, and lines of the file that they begin in."""
    image = bytearray(stripped.read_bytes())
    at = table_offset(stripped)
    code = find(read_sections(bytes_reader(bytes(image))), ".text")
    assert code is not None
    image[at : at + 4] = GO_1_18.to_bytes(4, "little")
    image[at + 24 : at + 32] = code.address.to_bytes(8, "little")  # as it was up to Go 1.25
    descriptor = os.open(stripped, os.O_RDONLY)
    load_address = identity.read_file(descriptor).load_address
    os.close(descriptor)
    found = SymCache.from_bytes(go_symcache(bytes_reader(bytes(image)), load_address))
    newer = opened(stripped)[1]
    several = [address for address in range(0x1000, 0x60000, 3) if len(newer.lookup(address)) > 1]
    assert len(several) > 100
    for address in several:
        now, then = lines(newer, address), lines(found, address)
        assert [name for name, _, _ in then] == [now[-1][0]]


def readable(symcache: bytes) -> bool:
    """Whether it is empty, or says something of each address."""
    if not symcache:
        return True
    found = SymCache.from_bytes(symcache)
    return all(len(found.lookup(address)) <= MAX_DEPTH + 1 for address in range(0x1000, 0x100000, 501))


@settings(max_examples=examples(0.2))
@given(data=st.data())
def test_tables_that_lie_give_fewer_names_and_hurt_nobody(stripped: Path, data: st.DataObject) -> None:
    image = bytearray(stripped.read_bytes())
    at = table_offset(stripped)
    for _ in range(data.draw(st.integers(1, 20))):
        where = data.draw(st.one_of(st.integers(0, 71), st.integers(72, len(image) - at - 1)))
        image[at + where] = data.draw(st.integers(0, 255))
    assert readable(go_symcache(bytes_reader(bytes(image)), 0))


def test_a_table_whose_begin_is_not_sure_names_nothing(stripped: Path, tmp_path: Path) -> None:
    image = bytearray(stripped.read_bytes())
    at = table_offset(stripped)
    image[at + 24 : at + 32] = bytes(8)
    module = find(read_sections(bytes_reader(bytes(image))), ".go.module")
    assert module is not None
    image[module.offset + MODULE_TEXT] ^= 0x10
    (tmp_path / "other").write_bytes(image)
    descriptor = os.open(tmp_path / "other", os.O_RDONLY)
    assert best(descriptor) == NOTHING
    os.close(descriptor)
