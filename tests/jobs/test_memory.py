"""A job's memory does not grow with its range. `make soak` runs it: it makes and reads 100 MB."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.jobs import START, fill
from jobs.recompute.recompute import RecomputeCounts, Unit
from jobs.recompute.sources import ArchiveSource
from jobs.recompute.workers import portions
from jobs.time_range import SLICE_NS, JobTimeRange
from streams.partition.process import Operators
from tests.data.messages import WINDOW_NS

pytestmark = [pytest.mark.pipeline, pytest.mark.soak]

HOSTS, WINDOWS = 4, SLICE_NS // WINDOW_NS
"""A slice of them becomes 26 MB of rows."""
MEASURE = """
import resource, sys
from tests.jobs.test_memory import recompute
print(recompute(sys.argv[1], int(sys.argv[2])), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def recompute(archive: str, slices: int) -> int:
    """Recomputes so many slices, and keeps nothing; returns the number of samples."""
    units = (
        Unit(part, partition)
        for part in JobTimeRange(START, START + slices * SLICE_NS).slices()
        for partition in ArchiveSource(archive).partitions(part)
    )
    total = RecomputeCounts()
    for portion in portions(units, ArchiveSource(archive), Operators, "", processes=1):
        if portion.counts is not None:
            total.add(portion.counts)
    return total.samples


def test_four_slices_take_no_more_memory_than_one(tmp_path: Path) -> None:
    fill(str(tmp_path), HOSTS, 4 * WINDOWS)
    samples, megabytes = {}, {}
    for slices in (1, 4):
        measured = subprocess.run(
            [sys.executable, "-c", MEASURE, str(tmp_path), str(slices)],
            cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True,
        )  # fmt: skip
        samples[slices], megabytes[slices] = map(int, measured.stdout.split())
    assert samples[4] > 3.9 * samples[1] > 0
    assert megabytes[4] < megabytes[1] + 40
