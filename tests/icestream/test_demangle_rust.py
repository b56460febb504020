"""Rust's v0 names: the examples of its RFC, a real program against c++filt, and names that are none."""

import re
import shutil
import string
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icestream.symbols.demangle import MAX_READABLE_LENGTH, demangle

pytestmark = pytest.mark.slow

PROGRAM = """
use std::fmt::{Debug, Display};
struct Cart<T, const N: usize>(Vec<T>);
trait Total { fn total(&self) -> u64; }
impl<const N: usize> Total for Cart<u64, N> {
    #[inline(never)] fn total(&self) -> u64 { self.0.iter().map(|x| x * N as u64).sum() }
}
#[inline(never)] fn show<T: Debug + ?Sized>(x: &T, f: fn(&str, &mut u8) -> bool, d: &(dyn Display + Send)) {
    println!("{:?} {} {}", x, f("x", &mut 1), d)
}
#[inline(never)] fn largest<const C: char, const B: bool>(x: &mut [(u8, *const i32); 3]) {
    println!("{:?} {} {}", x, C, B)
}
mod größe { #[inline(never)] pub fn für(x: u64) -> u64 { std::hint::black_box(x) } }
fn main() {
    show("a", |a, _| a.is_empty(), &1.5);
    show(&[1u8, 2], |_, b| *b > 0, &"d");
    largest::<'x', true>(&mut [(1, std::ptr::null()); 3]);
    std::thread::spawn(|| println!("{}", Cart::<u64, 7>(vec![größe::für(1)]).total())).join().unwrap();
}
"""


@pytest.mark.parametrize(
    ("mangled", "readable"),
    [
        ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
        ("_RNvCskwGfYPst2Cb_3foo16example_function", "foo::example_function"),
        ("_RNvMCskwGfYPst2Cb_3fooNtB2_13ExampleStruct12trait_method", "<foo::ExampleStruct>::trait_method"),
        ("_RNvXCs_3fooNtB2_3BarNtB2_5Trait6method", "<foo::Bar as foo::Trait>::method"),
        ("_RNCNvCs_3foo3bars_0", "foo::bar::{closure#1}"),
        ("_RINvCs_3foo3barlE", "foo::bar::<i32>"),
        ("_RINvCs_3foo3barKj1f_E", "foo::bar::<31>"),
        ("_RINvCs_3foo3barKln5_Kb1_Kc78_KpE", "foo::bar::<-5, true, 'x', _>"),
        ("_RINvCs_3foo3barFUKCRheEuE", 'foo::bar::<unsafe extern "C" fn(&u8, str)>'),
        ("_RINvCs_3foo3barTETlETlhEAhj3_SaE", "foo::bar::<(), (i32,), (i32, u8), [u8; 3], [i8]>"),
        ("_RNvCs_3foo3bar.llvm.1234", "foo::bar"),
        ("_RNqCs4fqI2P2rA04_11utf8_identsu30____7hkackfecea1cbdathfdh9hlq6y", "utf8_idents::საჭმელად_გემრიელი_სადილი"),
        ("_R", None),
        ("_RaiseException", None),
        ("_RNvC", None),
        ("_RNvC1a1bxyz", None),
    ],
)
def test_names_are_as_rust_writes_them(mangled: str, readable: str | None) -> None:
    assert demangle(mangled) == (readable or mangled)


def has_rust() -> bool:
    """Whether there is a compiler, and not only the command that would choose one."""
    return bool(shutil.which("rustc")) and subprocess.run(["rustc", "--version"], capture_output=True).returncode == 0


@pytest.mark.skipif(not (has_rust() and shutil.which("c++filt")), reason="needs rustc and c++filt")
def test_names_of_a_real_program_are_those_of_binutils(tmp_path: Path) -> None:
    (tmp_path / "a.rs").write_text(PROGRAM)
    program = tmp_path / "a"
    flags = ["--edition", "2021", "-C", "symbol-mangling-version=v0", "-A", "warnings"]
    subprocess.run(["rustc", *flags, tmp_path / "a.rs", "-o", program], check=True)
    symbols = subprocess.check_output(["nm", "--format=posix", program], text=True).splitlines()
    names = sorted({line.split()[0] for line in symbols if line.startswith("_R")})
    assert len(names) > 100
    filtered = subprocess.run(
        ["c++filt", "-s", "rust"], input="\n".join(names), check=True, capture_output=True, text=True
    )
    for name, expected in zip(names, filtered.stdout.splitlines(), strict=True):
        # It shows hashes of crates, and types of constants.
        plain = re.sub(r"\[[0-9a-f]{6,16}\]", "", expected)
        plain = re.sub(r"(\b[0-9]+|true|false|'.'): (usize|bool|char)", r"\1", plain)
        assert demangle(name) == plain
    assert any("größe::für" in demangle(name) for name in names)


@given(st.text(alphabet="CMXYNIBRQPOASTFDLKGEUup_sv0123456789abch", max_size=60))
def test_names_that_are_none_stay_as_they_are(text: str) -> None:
    assert len(demangle(f"_R{text}")) <= MAX_READABLE_LENGTH


@pytest.mark.parametrize("levels", [3, 20, 100])
def test_a_name_that_refers_to_itself_over_and_over_is_left_alone(levels: int) -> None:
    symbol, start = "INvC1a1bTccE", 8
    for _ in range(levels):
        back = f"B{base62(start)}"
        start = len(symbol)
        symbol += f"T{back}{back}E"
    readable = demangle(f"_R{symbol}E")
    assert readable.startswith("a::b::<(char, char), ((char, char), (char, char))" if levels == 3 else "_R")


@pytest.mark.parametrize("name", ["_R" + "I" * 4000, "_RB_", "_RNvC1a" + "9" * 4000, "_Z1f" + "P" * 4000 + "i"])
def test_names_that_nest_without_end_are_left_alone(name: str) -> None:
    assert demangle(name) == name


def base62(number: int) -> str:
    """As v0 writes it: `_` is 0, `0_` is 1."""
    digits = string.digits + string.ascii_lowercase + string.ascii_uppercase
    text, number = "_", number - 1
    while number >= 0:
        text, number = digits[number % 62] + text, number // 62 or -1
    return text
