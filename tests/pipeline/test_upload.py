"""Names that CI uploads name what was profiled before, of programs that no host has names of."""

import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from collector.elf import identity
from icestream.topics import RAW
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


def batch(program: Path, stack: list[int], start: int) -> bytes:
    """A raw batch with one sample of a program, leaf first."""
    descriptor = os.open(program, os.O_RDONLY)
    build_id = identity.read_file(descriptor).build_id
    os.close(descriptor)
    rows = range(len(stack))
    return raw_batch(
        batch_id(host="host-0"), start,
        {
            "location_mapping": np.ones(len(rows)), "location_address": np.array(stack, np.uint64),
            "location_function": np.zeros(len(rows)), "location_file": np.zeros(len(rows)),
            "location_line": np.zeros(len(rows)), "stack_depth": [len(rows)], "stack_frames": rows,
            "sample_offset_us": [0],
        },
        mappings=[Mapping(), Mapping(kind=Mapping.FILE, build_id=build_id, file=str(program))],
        series=[raw_series({"host": "host-0", "service": "shop"})],
    )  # fmt: skip
