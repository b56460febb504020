"""Names that CI uploads name what was profiled before, of programs that no host has names of."""

import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from collector.elf import identity
from collector.symbols.builder import SymbolBuilder
from collector.symbols.symbol_files import SymbolFiles
from icestream.topics import RAW, SYMBOLS
from icestream.v1.common_pb2 import Mapping
from tests.data.messages import PERIOD_NS, WINDOW_NS, batch_id, raw_batch, raw_series
from tests.pipeline.running import ICESTREAM, Pipeline, between

pytestmark = pytest.mark.pipeline

SOURCE = """
namespace shop {
inline __attribute__((always_inline)) int price(volatile int *x) { return *x * 3; }
struct Cart { __attribute__((noinline)) int total(volatile int *x) { return price(x) + 1; } };
}
int main() { volatile int x = 4; return shop::Cart().total(&x); }
"""
LIBRARY = """
static __attribute__((noinline)) int hidden(int x) { volatile int s = 0; while (x-- > 0) s += x; return s; }
int shown(int x) { return hidden(x) + 1; }
"""


# Slow; in CI, test_gateway.py names by an upload what came before.
@pytest.mark.soak
def test_an_upload_names_what_a_stripped_program_did_before(embedded_pipeline: Pipeline, tmp_path: Path) -> None:
    program = tmp_path / "program"
    (tmp_path / "a.cpp").write_text(SOURCE)
    subprocess.run(["g++", "-g", "-O1", tmp_path / "a.cpp", "-o", program], check=True)
    lines = [line.split() for line in subprocess.check_output(["nm", program], text=True).splitlines()]
    address = {line[-1]: int(line[0], 16) for line in lines if len(line) == 3}
    start = time.time_ns() // WINDOW_NS * WINDOW_NS - 60 * 10**9
    raw = batch(program, [address["_ZN4shop4Cart5totalEPVi"] + 1, address["main"] + 8], start)
    embedded_pipeline.produce(RAW, raw)

    def graph() -> str:
        query = between(start, start + WINDOW_NS)
        return str(embedded_pipeline.get("/api/v1/merge", format="collapsed", selector="{}", **query))

    unnamed = f"program+{address['main'] + 8:#x};program+{address['_ZN4shop4Cart5totalEPVi'] + 1:#x} {PERIOD_NS}"
    assert embedded_pipeline.wait(graph, bool).strip() == unnamed
    upload = [*ICESTREAM, "symbols", "upload", "--kafka", embedded_pipeline.settings.kafka, str(program)]
    out = subprocess.run(upload, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2]).stdout
    assert "1 uploaded" in out
    named = f"main;shop::Cart::total(int volatile*);shop::price(int volatile*) {PERIOD_NS}"
    embedded_pipeline.wait(graph, lambda text: text.strip() == named)


# Slow; in CI, tests/collector/symbols/test_function_starts.py shows that every address of a local function has the name
# of its start, and test_gateway.py that names reach what was stored before them.
@pytest.mark.soak
def test_unnamed_code_of_one_function_is_one_frame_and_the_function_may_have_any_file_name(
    embedded_pipeline: Pipeline, tmp_path: Path
) -> None:
    library = tmp_path / "libcart.so.1"
    (tmp_path / "a.c").write_text(LIBRARY)
    command = ["gcc", "-O1", "-shared", "-fPIC", "-Wl,--build-id", "-fno-toplevel-reorder", tmp_path / "a.c"]
    subprocess.run([*command, "-o", library], check=True)
    lines = [line.split() for line in subprocess.check_output(["nm", library], text=True).splitlines()]
    address = {line[-1]: int(line[0], 16) for line in lines if len(line) == 3}
    subprocess.run(["strip", library], check=True)
    start = time.time_ns() // WINDOW_NS * WINDOW_NS - 60 * 10**9
    hidden, shown = address["hidden"], address["shown"]
    for second, at in enumerate((1, 5, 9)):
        raw = batch(library, [hidden + at, shown + 8], start, sequence=second + 1)
        embedded_pipeline.produce(RAW, raw)

    def top() -> dict[str, int]:
        query = between(start, start + WINDOW_NS)
        rows = embedded_pipeline.get("/api/v1/top", selector="{}", **query)["top"]
        return {row["name"]: row["flat"] for row in rows if row["flat"]}

    unnamed = {f"{library.name}+{hidden + at:#x}": PERIOD_NS for at in (1, 5, 9)}
    embedded_pipeline.wait(top, lambda rows: rows == unnamed)
    builder = SymbolBuilder("host-0", "", SymbolFiles())
    for file in builder.answer(build_id_of(library), str(library)):
        embedded_pipeline.produce(SYMBOLS, file.SerializeToString())
    builder.end_children()
    embedded_pipeline.wait(top, lambda rows: rows == {f"{library.name}+{hidden:#x}": 3 * PERIOD_NS})
    query = between(start, start + WINDOW_NS)
    stacks = str(embedded_pipeline.get("/api/v1/merge", format="collapsed", selector="{}", **query))
    assert stacks.strip() == f"shown;{library.name}+{hidden:#x} {3 * PERIOD_NS}"


def batch(program: Path, stack: list[int], start: int, sequence: int = 1) -> bytes:
    """A raw batch with one sample of a program, leaf first."""
    build_id = build_id_of(program)
    rows = range(len(stack))
    return raw_batch(
        batch_id(sequence, host="host-0"), start,
        {
            "location_mapping": np.ones(len(rows)), "location_address": np.array(stack, np.uint64),
            "location_function": np.zeros(len(rows)), "location_file": np.zeros(len(rows)),
            "location_line": np.zeros(len(rows)), "stack_depth": [len(rows)], "stack_frames": rows,
            "sample_offset_us": [0],
        },
        mappings=[Mapping(), Mapping(kind=Mapping.FILE, build_id=build_id, file=str(program))],
        series=[raw_series({"host": "host-0", "service": "shop"})],
    )  # fmt: skip


def build_id_of(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return identity.read_file(descriptor).build_id
    finally:
        os.close(descriptor)
