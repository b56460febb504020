"""Each benchmark runs with a load of seconds, ends well, and prints the figures that it promises; never for a time."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.__main__ import FOLDER, NAMES

pytestmark = pytest.mark.slow

ROOT = pytest.mark.ebpf
MORE = pytest.mark.soak  # they start all parts, fill much, or take a minute
LOADS = {
    "attribution": ("--runs 1", "span_us attach_ms_per_million_samples covered_share wrong", ()),
    "clickhouse": ("--batches 20", "clickhouse_decoded_per_second clickhouse_bytes_a_sample_samples", ()),
    "collector": ("--seconds 1 --loads busy", "process_percent resident_mb samples_per_s", (ROOT, MORE)),
    "exports": ("--stacks 100 --runs 1", "stacks nodes pprof speedscope collapsed tree", ()),
    "fleet": ("--hosts 2 --windows 1", "windows_per_cpu_second peak_memory_mb lake_bytes_a_row takeover_s", (MORE,)),
    "fleet_week": ("--hosts 2 --windows 1", "week_hosts week_resident_mb_by_day week_samples_per_cpu_second", ()),
    "freshness": ("", "freshness_p95_s sampled_over_thread_cpu samples", (ROOT, MORE)),
    "gateway": ("--profiles 110", "ack_ms_p50 cpu_s_for_18000_profiles bytes_per_row archive_over_tables", (MORE,)),
    "jobs": ("--hosts 4 --windows 2", "jobs_recomputed_x_real_time_per_core jobs_stored_x_real_time how", ()),
    "off_cpu": ("--seconds 0.1", "nothing_followed share_0.01 share_1 ns_per_followed_wait_unwound", (ROOT, MORE)),
    "page": ("", "frames parse read_tree search paint_root scroll zoom_click hover functions", (MORE,)),
    "processes": ("--seconds 0.2", "20_per_second 500_per_second 500_per_second_no_bound", (ROOT, MORE)),
    "pyroscope": ("--help", "", ()),  # it needs a Pyroscope
    "python_frames": ("--seconds 0.2 --rounds 1", "us_per_sample us_of_python python_frames", (ROOT,)),
    "recent_requests": ("--requests 2000 --block 1000", "insert_cpu_s traces_sums_ms bytes_and_parts", (MORE,)),
    "requests": ("--requests 12 --frequencies 99", "missing_requests covered by_mode", (ROOT, MORE)),
    "storage": ("--rows 20000 --days 1 --runs 1", "bytes_a_sample merge_all_ms trace_ms inserted_per_second", (MORE,)),
    "streams": ("--seconds 0.2 --series 10000", "samples_per_second batch_ms raw_message_bytes new_series_us", ()),
    "thinned_requests": ("--requests 1000", "kept_requests bytes_before bytes_after share_of_bytes", (MORE,)),
    "tracing": ("--runs 1", "span_us callback_off_us opentelemetry_span_us thread_clock_ns", ()),
    "unwind_tables": (sys.executable, "files peak_resident_mb", ()),
}
"""Arguments, figures and marks of each."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, (_, _, marks) in LOADS.items()])
def test_a_benchmark_prints_its_figures(name: str) -> None:
    arguments, figures, _ = LOADS[name]
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments.split()]
    done = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    if figures:
        answer = dict(read(json.loads(done.stdout)))
        assert set(figures.split()) <= answer.keys()
        assert all(math.isfinite(value) for value in answer.values() if isinstance(value, float))
        assert None not in answer.values()


def read(answer: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """All names of an answer, at any depth, and their values."""
    for name, value in answer.items():
        yield name, value
        if isinstance(value, dict):
            yield from read(value)


def test_each_benchmark_has_a_load() -> None:
    assert LOADS.keys() == set(NAMES)
