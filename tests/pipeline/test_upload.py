"""Names that CI uploads name what was profiled before, of programs that no host has names of."""

import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from collector.elf import identity
from icestream import packed
from icestream.topics import DEFAULT_PROFILE_TYPE, RAW
from icestream.v1.common_pb2 import BatchId, Label, Mapping, Series
from icestream.v1.raw_pb2 import RawBatch
from tests.data.windows import PERIOD_NS, WINDOW_NS
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
    raw = RawBatch(
        id=BatchId(collector="host-0", started_unix_nano=1, sequence=1, part=0, parts=1), host_id="host-0",
        profile_type=DEFAULT_PROFILE_TYPE, start_unix_nano=start, end_unix_nano=start + WINDOW_NS, period=PERIOD_NS,
        published_unix_nano=start + WINDOW_NS, activity_complete_unix_nano=start + WINDOW_NS, strings=[""],
        mappings=[Mapping(), Mapping(kind=Mapping.FILE, build_id=build_id, file=str(program))],
        series=[Series(labels=[Label(name="host", value="host-0"), Label(name="service", value="shop")])],
    )  # fmt: skip
    one = np.zeros(1)
    count = len(stack)
    return packed.serialize(
        raw,
        {
            "location_mapping": np.ones(count),
            "location_address": np.array(stack, np.uint64),
            "location_function": np.zeros(count),
            "location_file": np.zeros(count),
            "location_line": np.zeros(count),
            "stack_depth": np.array([count]),
            "stack_frames": np.arange(count),
            "sample_offset_us": one,
            "sample_series": one,
            "sample_pid": one + 100,
            "sample_tid": one + 100,
            "sample_stack": one,
            "sample_context": one,
        },
    )
