"""Functions that have several names, or whose first address is that of another one, too."""

import os
import subprocess
from pathlib import Path

import pytest
from symbolic.symcache import SymCache

from collector.elf.reader import bytes_reader, file_reader
from collector.symbols.file_names import make
from collector.symbols.functions import functions
from collector.symbols.name_kinds import DEBUG_INFO, DYNAMIC, SYMBOL_TABLE
from collector.symbols.symcache_names import with_best_names
from icestream.symbols.demangle import demangle

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


# As glibc's: the versions of the public function are local aliases of what does the work.
ALIASES = """
__attribute__((noinline)) int start_main_impl(int x) { __asm__ volatile("" : : "r"(x)); return x; }
#define ALIAS(name) extern int name(int) __attribute__((alias("start_main_impl")
ALIAS(start_main_alias_1), visibility("hidden")));
ALIAS(start_main_alias_2), visibility("hidden")));
ALIAS(__start_main)));
ALIAS(start_main), weak));
"""


def test_a_function_has_its_public_name_with_debug_information_and_without(tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    flags = ["-O2", "-g", "-shared", "-fPIC", "-Wl,--build-id"]
    subprocess.run(["gcc", *flags, "-x", "c", "-", "-o", library], input=ALIASES.encode(), check=True)
    with open(library, "rb") as file:
        [start] = [code.start for code in functions(file_reader(file.fileno())) if "start_main" in code.name]
        for kind in (DEBUG_INFO, SYMBOL_TABLE, DYNAMIC):
            made = make(file.fileno(), kind)
            [frame] = SymCache.from_bytes(made.symcache).lookup(start - made.load_address)
            assert frame.symbol == "start_main"


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
    assert with_best_names(noise, functions(bytes_reader(b"")), 0) == noise
