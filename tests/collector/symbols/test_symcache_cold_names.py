"""Functions whose rarely run part begins where that of another function, without bytes, begins."""

import os
import subprocess
from pathlib import Path

import pytest
from symbolic.symcache import SymCache

from collector.elf.reader import file_reader
from collector.symbols.file_names import make
from collector.symbols.functions import functions
from collector.symbols.name_kinds import DEBUG_INFO
from collector.symbols.symcache_cold_names import with_cold_names
from icestream.demangle import demangle

# GCC writes what is said here before the part of `busy` that it moves to the same section.
SOURCE = """
__asm__(".pushsection .text.unlikely,\\"ax\\",@progbits\\n"
        ".type NAME.cold,@function\\n"
        "NAME.cold:\\n"
        ".popsection\\n");

__attribute__((cold, noinline)) void rare(int x) { __asm__ volatile("" : : "r"(x)); }

__attribute__((noinline)) int busy(int x)
{
	if (__builtin_expect(x == 77, 0)) {
		rare(x);
		rare(x + 1);
	}
	return x * 42;
}

int main(int argc, char **argv) { return busy(argc); }
"""


@pytest.mark.parametrize("other", ["another", "zzz_other"])
def test_a_function_keeps_its_name(tmp_path: Path, other: str) -> None:
    program = tmp_path / "program"
    program.with_suffix(".c").write_text(SOURCE.replace("NAME", other))
    flags = ["-O2", "-g", "-Wl,--build-id"]
    subprocess.run(["gcc", *flags, program.with_suffix(".c"), "-o", program], check=True)
    with open(program, "rb") as file:
        symbols = functions(file_reader(file.fileno()))
        made = make(file.fileno(), DEBUG_INFO)
        named = {code.name: code.start for code in symbols}
        assert f"{other}.cold" not in named  # it has no bytes
        assert "busy.cold" in named
    symcache = SymCache.from_bytes(made.symcache)
    for address in (named["busy"], named["busy.cold"], named["main"], named["rare"]):
        expected = next(name for name, start in named.items() if start == address)
        frame = symcache.lookup(address - made.load_address)[-1]
        assert demangle(frame.symbol) == demangle(expected)
        assert frame.line


def test_what_is_no_symcache_is_left_as_it_is() -> None:
    noise = os.urandom(200)
    assert with_cold_names(noise, [], 0) == noise
