"""What V8 has compiled, in live processes of every Node on this machine, and memory that is none."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.processes.jit_name import JitName
from collector.runtimes.lines import CodeLines
from collector.runtimes.v8.compiled import CodeHead, CompiledCode, read_compiled
from collector.runtimes.v8.functions import FoundFunction, JsFunction
from collector.runtimes.v8.heap import Heap
from collector.runtimes.v8.layout import layout
from collector.runtimes.v8.positions import read_positions
from collector.runtimes.v8.scripts import Scripts
from tests.collector.runtimes.v8.nodes import Node, areas_of, compiled_on_heap, engine, nodes, running
from tests.collector.runtimes.v8.test_functions import CONSTANTS

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "lines.js"
LINES = {"work": {2}, "seven": {3, 4, 5, 6, 7}, "three": {9, 10, 11, 12, 13}, "calls": set(range(15, 22))}
LINES |= {"loops": set(range(23, 30)), "main": set(range(31, 40))}


def codes_of(node: Node, *flags: str) -> list[CompiledCode]:
    known = engine(node.path)
    with running([node.path, *flags, str(PROGRAM)]) as pid, areas_of(pid) as areas:
        heap = Heap(areas, known.layout.text.strings_end)
        addresses = compiled_on_heap(pid, heap, known.layout)
        assert addresses
        return read_compiled(pid, heap, known.layout, known.bytecode_sizes, Scripts(), addresses)


@pytest.mark.parametrize("node", nodes(), ids=lambda node: node.name)
def test_optimized_code_has_the_functions_that_were_inlined_and_lines_of_each(node: Node) -> None:
    chains = {functions for code in codes_of(node) for functions in code.functions}
    own = [
        [(each.function, each.line) for each in functions] for functions in chains if functions[-1].file == str(PROGRAM)
    ]
    for functions in own:
        assert all(line in LINES[name] for name, line in functions), functions
    inlined = [functions for functions in own if len(functions) > 1]
    assert [("work", 2), ("seven", 6), ("calls", 18)] in [functions[:3] for functions in inlined]
    assert [("work", 2), ("three", 12), ("calls", 19)] in [functions[:3] for functions in inlined]
    assert {("loops", 26), ("loops", 28)} <= {functions[0] for functions in own}


@pytest.mark.parametrize("node", nodes(), ids=lambda node: node.name)
def test_addresses_in_code_of_sparkplug_lead_to_all_bytecodes(node: Node) -> None:
    codes = [code for code in codes_of(node, "--always-sparkplug", "--no-opt") if code.own is None]
    assert len(codes) > 20
    for code in codes:
        assert code.check
        assert len(code.at) > 1
        found = [code.at.at(offset) for offset in range(code.head.size)]
        assert found == sorted(found)


def numbers(values: Sequence[int]) -> bytes:
    """As V8 writes them, 7 bits a byte."""
    data = bytearray()
    for value in values:
        while value > 0x7F:
            data.append(value & 0x7F | 0x80)
            value >>= 7
        data.append(value)
    return bytes(data)


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 1 << 29), st.integers(0, 900)), max_size=30))
def test_positions_are_read_as_they_were_written(rows: list[tuple[int, int, int]]) -> None:
    written, before = list[int](), 0
    for step, character, inlining in rows:
        position = inlining << 31 | (character + 1) << 1
        change = position - before
        written += [step << 1, 2 * change if change >= 0 else -2 * change - 1]
        before = position
    found = read_positions(numbers(written), 1)
    steps = np.diff(found.offset, prepend=-1)
    assert list(zip(steps.tolist(), found.character.tolist(), found.inlining.tolist(), strict=True)) == rows


@given(st.binary(max_size=200))
def test_damaged_tables_are_survived(table: bytes) -> None:
    for column in read_positions(table, 2):
        assert len(column) <= len(table)


@given(st.integers(0, 1 << 32))
def test_memory_that_only_looks_like_code_is_survived(seed: int) -> None:
    """Objects that point to each other in any way, with types and lengths of any kind."""
    known, base, choice = layout((11, 3), CONSTANTS.get), 1 << 32, random.Random(seed)
    tables = known.tables
    kinds = [known.walk.shared_type, known.walk.bytecode_type, known.text.scope_type, known.text.script_type]
    kinds += [tables.code_type, tables.stream_type, *tables.byte_types, *tables.word_types]
    words = [base + 64 * row + 1 for row in range(64)] + [base + 64 * row + 16 for row in range(64)]
    words += [length << 32 for length in (0, 1, 2, 75, 1000, 1 << 20, (1 << 32) - 1)]
    words += [kind << 32 for kind in kinds] * 4  # in the second word of a map
    memory = b"".join(choice.choice(words).to_bytes(8, "little") for _ in range(8 * 64))
    read = 0

    def areas(wanted: Sequence[tuple[int, int]]) -> list[bytes | None]:
        nonlocal read
        read += sum(size for _, size in wanted)
        found = [memory[at - base : at - base + size] if at >= base else b"" for at, size in wanted]
        return [part if len(part) == size else None for part, (_, size) in zip(found, wanted, strict=True)]

    sizes = bytes([1] * 3 * 200)
    for code in read_compiled(
        1, Heap(areas, 128), known, sizes, Scripts(), [(base, base + 64 * row) for row in range(64)]
    ):
        assert all(len(functions) <= 1025 for functions in code.functions)
    assert read < 200 << 20


def test_code_of_another_function_is_refused() -> None:
    head = CodeHead(0x7000_8000_0000, 100, 0, 0)
    function = FoundFunction(7, JsFunction("f", "/f.js", 3), CodeLines([0, 4], [3, 5]), 99, None)
    sparkplug = CompiledCode(head, None, 99, CodeLines([10, 20], [0, 4]), ())
    assert sparkplug.find(0x0000_0014, function) == (("f", "/f.js", 5),)
    assert not sparkplug.find(0x0000_0014, function._replace(table=98))
    assert not sparkplug.find(0x0000_0064, function)
    optimized = CompiledCode(head, function.function, 7, CodeLines([10], [1]), ((JitName("g", "/f.js", 2),),))
    assert optimized.find(0x0000_0014, function) == (("g", "/f.js", 2),)
    assert not optimized.find(0x0000_0014, function._replace(check=8))
    assert not optimized.find(0x0000_0004, function)
