"""Stripped Go programs: functions, files and lines as the symbols and the debug information have them."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from symbolic.symcache import SymCache

from collector.elf.reader import bytes_reader, file_reader
from collector.symbols.file_names import best, make
from collector.symbols.functions import functions
from collector.symbols.go_lines import go_breakpad
from collector.symbols.name_kinds import DEBUG_INFO, LINE_TABLE, NOTHING
from tests.examples import examples
from tests.go import needs_go

PROGRAM = """package main

import (
	"os"
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

func main() {
	c := &Cart{items: os.Args}
	f := func() int { return c.Total() }
	os.Exit(f() & 1)
}
"""

pytestmark = needs_go


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("go")
    (folder / "main.go").write_text(PROGRAM)
    (folder / "go.mod").write_text("module example.org/shop\n")
    environ = os.environ | {"GOFLAGS": "-mod=mod", "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    subprocess.run(["go", "build", "-o", "program", "."], cwd=folder, env=environ, check=True)
    return folder / "program"


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


def test_functions_and_lines_of_a_stripped_program(whole: Path, stripped: Path) -> None:
    version, found, base = opened(stripped)
    true_version, true, true_base = opened(whole)
    assert (version, true_version) == (LINE_TABLE, DEBUG_INFO)
    descriptor = os.open(whole, os.O_RDONLY)
    ranges = [
        r for r in functions(file_reader(descriptor)) if r.name.startswith(("main.", "strings.", "runtime.ma", "os."))
    ]
    os.close(descriptor)
    assert {"main.work", "main.(*Cart).Total", "main.main"} <= {code_range.name for code_range in ranges}
    compared = 0
    for function in ranges:
        for address in range(function.start, function.end):
            names, truth = found.lookup(address - base), true.lookup(address - true_base)
            if not names:  # between functions, where the symbol table counts what fills the gap
                continue
            assert [line.symbol for line in names] == [function.name.removesuffix(".abi0")]
            # Where other functions are inlined, the line is that of the function around them.
            if len(truth) == 1 and truth[0].line and names[0].line and truth[0].full_path == names[0].full_path:
                assert names[0].line == truth[0].line
                compared += 1
    assert compared > 1000


@settings(max_examples=examples(0.2))
@given(data=st.data())
def test_tables_that_lie_give_fewer_names_and_hurt_nobody(stripped: Path, data: st.DataObject) -> None:
    image = bytearray(stripped.read_bytes())
    at = table_offset(stripped)
    for _ in range(data.draw(st.integers(1, 20))):
        where = data.draw(st.one_of(st.integers(0, 71), st.integers(72, 400_000)))
        image[at + where] = data.draw(st.integers(0, 255))
    assert isinstance(go_breakpad(bytes_reader(bytes(image)), 0), bytes)


def test_a_table_whose_begin_is_not_sure_names_nothing(stripped: Path, tmp_path: Path) -> None:
    """With another entry nothing says that .text begins with Go's code."""
    image = bytearray(stripped.read_bytes())
    image[24:32] = (0x401005).to_bytes(8, "little")
    at = table_offset(stripped)
    image[at + 24 : at + 32] = bytes(8)
    (tmp_path / "other").write_bytes(image)
    descriptor = os.open(tmp_path / "other", os.O_RDONLY)
    assert best(descriptor) == NOTHING
    os.close(descriptor)
