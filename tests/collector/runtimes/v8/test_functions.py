"""Functions on the heaps of live processes, of every Node on this machine, and memory that is none."""

import contextlib
import os
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.elf.reader import file_reader
from collector.runtimes.v8 import layout as layout_module
from collector.runtimes.v8.functions import JsFunction, read_functions
from collector.runtimes.v8.heap import MAX_CHARACTERS, Heap
from collector.runtimes.v8.layout import V8Layout, V8LayoutError, layout
from collector.runtimes.v8.scripts import MAX_NAME, Scripts
from collector.runtimes.v8.symbols import find_engine
from tests.collector.runtimes.v8.nodes import Node, areas_of, engine, functions_on_heap, nodes, running

PROGRAM = Path(__file__).parent / "functions.js"
EACH = pytest.mark.parametrize("node", nodes(), ids=lambda node: node.name)
_COMPILED = re.compile(
    r"^\w+ \w+ (?:JS|LazyCompile|Function|Eval|Script):[~*^+]*'?(\S*(?: \S+)?) (\S+?):(\d+)(?::\d+)?$", re.MULTILINE
)
CONSTANTS = layout_module._OF_ALL | {
    "type_JSFunction__JS_FUNCTION_TYPE": 2066,
    "type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE": 262,
    "type_ScopeInfo__SCOPE_INFO_TYPE": 261,
    "type_Script__SCRIPT_TYPE": 167,
    "type_FixedArray__FIXED_ARRAY_TYPE": 175,
    "type_BytecodeArray__BYTECODE_ARRAY_TYPE": 191,
    "IsNotStringMask": -128,
    "class_JSFunction__shared__SharedFunctionInfo": 24,
    "class_SharedFunctionInfo__flags__int": 48,
    "class_SharedFunctionInfo__name_or_scope_info__Object": 16,
    "class_SharedFunctionInfo__script_or_debug_info__HeapObject": 32,
}
"""Of Node 20."""
EXPECTED = {
    ("#hidden", 3), ("#own", 4), ("get total", 5), ("make", 6), ("Derived", 9), ("arrow", 11), ("inner", 12),
    ("Имя", 13), ("method", 14), ("object", 14), ("generator", 15), ("(anonymous)", 16), ("compare", 19),
    ("toJSON", 20), ("many", 23), ("deep", 24),
}  # fmt: skip


def functions_of(pid: int, known: V8Layout) -> set[JsFunction]:
    with areas_of(pid) as areas:
        heap = Heap(areas, known.text.strings_end)
        addresses = functions_on_heap(pid, heap, known.walk.shared_type)
        found = read_functions(pid, heap, known, Scripts(), addresses)
    return {each.function for each in filter(None, found)}


@EACH
def test_names_files_and_lines_are_those_of_the_program(node: Node, tmp_path: Path) -> None:
    many = range(80)  # so many variables of a scope are in a hash table
    names, values = "+".join(f"v{i}" for i in many), ",".join(f"v{i}={i}" for i in many)
    program = tmp_path / "Программа.js"
    more = f"(function many() {{ let {values};\nreturn function deep() {{ return {names}; }}; }})()();\n"
    program.write_text(PROGRAM.read_text() + more)
    with running([node.path, str(program)]) as pid:
        found = functions_of(pid, engine(node.path).layout)
    own = {(name, line) for name, file, line in found if file == str(program)}
    assert own >= EXPECTED
    assert {"map", "sort"} <= {name for name, file, line in found if not file}


@EACH
def test_v8_names_its_functions_alike(node: Node, tmp_path: Path) -> None:
    """What `--perf-basic-prof` says of every function that was compiled, Node's own as well."""
    with running([node.path, "--perf-basic-prof", str(PROGRAM)], tmp_path) as pid:
        found = functions_of(pid, engine(node.path).layout)
        said = Path(f"/tmp/perf-{pid}.map")
        functions = {(name, file, int(line)) for name, file, line in _COMPILED.findall(said.read_text())}
    said.unlink()
    missing = {each for each in functions if each[0]} - set(found)
    print(len(functions), missing)
    assert len(functions) > 100
    assert len(missing) < 0.02 * len(functions)


@given(st.integers(0, 1 << 32))
def test_memory_that_only_looks_like_objects_is_survived(seed: int) -> None:
    """Objects that point to each other in any way, with types and lengths of any kind."""
    known, base, choice = layout((11, 3), CONSTANTS.get), 1 << 32, random.Random(seed)
    kinds = [known.walk.shared_type, known.text.scope_type, known.text.script_type, known.text.array_type, *range(46)]
    words = [base + 64 * row + 1 for row in range(64)] * 2
    words += [length << 32 for length in (0, 1, 75, 1000, 1 << 20, (1 << 31) - 1, (1 << 32) - 1)]
    words += [kind << 32 for kind in kinds]  # in the second word of a map
    memory = b"".join(choice.choice(words).to_bytes(8, "little") for _ in range(8 * 64))
    read = 0

    def areas(wanted: Sequence[tuple[int, int]]) -> list[bytes | None]:
        nonlocal read
        assert len(wanted) < 1000
        read += sum(size for _, size in wanted)
        found = [memory[at - base : at - base + size] if at >= base else b"" for at, size in wanted]
        return [part if len(part) == size else None for part, (_, size) in zip(found, wanted, strict=True)]

    addresses = [base + 64 * row for row in range(60)]
    for each in read_functions(1, Heap(areas, 128), known, Scripts(), addresses):
        assert each is None or (len(each.function.name) <= MAX_CHARACTERS and len(each.function.file) <= MAX_NAME)
    assert read < 200 << 20


@settings(max_examples=30)
@given(st.integers(0, 1 << 32))
def test_files_that_are_damaged_are_survived(seed: int) -> None:
    choice = random.Random(seed)
    descriptor = os.open(nodes()[0].path, os.O_RDONLY)
    source = file_reader(descriptor)

    def damaged(offset: int, size: int) -> bytes:
        data = bytearray(source(offset, size))
        if data and choice.random() < 0.1:
            data[choice.randrange(len(data))] = choice.choice([0, 1, 0x7F, 0xFF])
        return bytes(data)

    try:
        with contextlib.suppress(V8LayoutError):
            find_engine(damaged)
    finally:
        os.close(descriptor)


def test_other_structures_are_refused() -> None:
    changes = {"TaggedSize": 4, "off_fp_function": -24, "class_JSFunction__shared__SharedFunctionInfo": 4096}
    for name, value in changes.items():
        with pytest.raises(V8LayoutError):
            layout((11, 3), (CONSTANTS | {name: value}).get)
    for version in ((9, 3), (14, 7)):
        with pytest.raises(V8LayoutError, match=r"expected 9\.4 to 14\.6"):
            layout(version, CONSTANTS.get)
    with pytest.raises(V8LayoutError, match="pointers are compressed"):
        layout((14, 6), (CONSTANTS | {"TaggedSize": 4}).get)
