"""Code objects in the memory of other processes, of every interpreter of this machine, and memory that is none."""

import ctypes
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.elf.reader import file_reader
from collector.runtimes.areas import read_areas
from collector.runtimes.python import code
from collector.runtimes.python.code import MAX_NAME
from collector.runtimes.python.layout import PythonLayout, layout
from collector.runtimes.python.symbols import Interpreter, find_interpreter
from tests.collector.runtimes.python.interpreters import Interpreter as Installed
from tests.collector.runtimes.python.interpreters import interpreters

pytestmark = pytest.mark.slow

OBJECTS = Path(__file__).parent / "objects.py"
EACH = pytest.mark.parametrize(
    "python", interpreters(), ids=lambda python: f"{python.name}-{Path(python.library).name}"
)


def interpreter(path: str) -> Interpreter:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        found = find_interpreter(file_reader(descriptor))
    finally:
        os.close(descriptor)
    assert found is not None
    return found


@contextmanager
def objects(python: str) -> Iterator[tuple[int, list[tuple[int, str, str, int, list[tuple[int, int, int | None]]]]]]:
    process = subprocess.Popen([python, str(OBJECTS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout
        yield process.pid, json.loads(process.stdout.readline())
    finally:
        process.communicate()


@EACH
def test_names_files_and_lines_are_those_that_python_says(python: Installed) -> None:
    with objects(python.path) as (pid, said):
        codes = code.read(pid, interpreter(python.library).layout, [address for address, *_ in said])
        found = {key.address: (key, value) for key, value in codes.items()}
    inner = "Größe.fläche.<locals>.inner" if python.minor >= 11 else "inner"
    assert {inner, "函数", "<module>"} <= {name for _, name, *_ in said}
    assert python.minor < 8 or "f\U0001d4b3" in {name for _, name, *_ in said}
    unit = 2 if python.minor == 10 else 1
    for address, name, file, first_line, lines in said:
        key, value = found[address]
        assert (value.function, value.file, key.check >> 32) == (name, file, 0)
        assert all(value.lines.at(at // unit) == line for at, end, line in lines if line for at in range(at, end, 2)), (
            name
        )
        assert first_line > 0


def test_processes_that_are_gone_and_addresses_that_are_none_are_not_found() -> None:
    known = layout(0x030B07F0, 0, b"")
    child = subprocess.Popen(["true"])
    child.wait()
    assert code.read(child.pid, known, [4096, 1 << 40]) == {}
    assert code.read(os.getpid(), known, [0, 8, 4096, (1 << 64) - 1, (1 << 63) + 5]) == {}


@given(st.data())
def test_memory_that_only_looks_like_a_code_object_is_survived(data: st.DataObject) -> None:
    """An object whose fields point to strings and bytes of any kind and length, or to nothing."""
    known: PythonLayout = layout(0x030B07F0, 0, b"")
    memory = ctypes.create_string_buffer(8192)
    base = ctypes.addressof(memory)
    pointers = st.sampled_from([0, 1, base + 512, base + 1024, base + 8190, 1 << 47, (1 << 64) - 8])
    lengths = st.sampled_from([0, 1, 5, 700, 100_000, 1 << 62, (1 << 64) - 1])

    def write(at: int, value: int) -> None:
        memory[at : at + 8] = value.to_bytes(8, "little")  # type: ignore[index]

    for at in (known.text.code_name, known.text.code_file, known.text.code_lines):
        write(at, data.draw(pointers))
    for at in (512, 1024):
        write(at + known.text.text_length, data.draw(lengths))
        write(at + known.text.text_state, data.draw(st.integers(0, 255)))
    memory[2048:4096] = os.urandom(2048)  # type: ignore[index]
    for key, found in code.read(os.getpid(), known, [base, base + 8000]).items():
        assert len(found.function) <= MAX_NAME
        assert found.lines.at(10) >= 0
        assert key.pid == os.getpid()


def test_places_are_read_together_and_those_that_cannot_be_are_left_out() -> None:
    memory = ctypes.create_string_buffer(bytes(range(256)) * 16, 4096)
    base = ctypes.addressof(memory)
    addresses = np.array([base + i for i in range(2000)] + [8, base + 1, 0], np.uint64)
    sizes = np.array([3] * 2000 + [16, 2, 0], np.int64)
    found = read_areas(os.getpid(), addresses, sizes)
    assert found[:2000] == [bytes((i + k) % 256 for k in range(3)) for i in range(2000)]
    assert found[2000:2002] == [None, b"\x01\x02"]
    assert read_areas(2**22 + 5, addresses[:2], sizes[:2]) == [None, None]
    assert read_areas(os.getpid(), addresses[:2], np.array([8, 1 << 62])) == [bytes(range(8)), None]
