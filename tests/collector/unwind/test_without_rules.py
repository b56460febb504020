"""Code for which there are no unwinding rules: its callers are found where they can be, and marked."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.batches.locations import locate
from collector.bpf.samples import ENDS, DrainedSamples
from collector.host import Host
from collector.kernel import Kernel
from tests.collector.unwind.programs import HERE
from tests.collector.watching import watching
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.ebpf

WORKING = """
function leaf(n) { let s = 0; for (let i = 0; i < 2000; i++) s += Math.sqrt(n * i); return s; }
function middle(a) { return a.map(x => leaf(x)).sort((x, y) => x - y).reduce((x, y) => x + y, 0); }
const a = Array.from({ length: 500 }, (_, i) => i);
for (;;) middle(a);
"""


Stacks = list[tuple[str, list[str]]]
"""Why each stack of a thread ends, and its named frames, leaf first."""


def stacks(command: list[str | Path], enough: Callable[[Stacks], bool]) -> Stacks:
    """Those of the program's first thread in the first second that is enough: its tables may be made meanwhile."""
    with watching(499) as (host, sampler):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert process.stdin
            process.stdin.write(b"go\n")
            process.stdin.flush()
            found: Stacks = []
            until = time.monotonic() + PATIENCE_S
            while not enough(found) and time.monotonic() < until:
                time.sleep(1.0)
                found = stacks_of(process.pid, sampler.drain(), host)
        finally:
            process.kill()
            process.communicate()
    return found


def stacks_of(pid: int, samples: DrainedSamples, host: Host) -> Stacks:
    located = locate(samples, host.mappings, Kernel())
    found = []
    ends = located.depth.cumsum()
    for sample in ((samples.pid == pid) & (samples.tid == pid)).nonzero()[0].tolist():
        stack = int(samples.stack[sample])
        row = int(located.row[sample])
        frames = located.frames[ends[row] - located.depth[row] : ends[row]]
        names = [located.names[int(located.name[frame])].function for frame in frames]
        found.append((ENDS[int(samples.stack_end[stack])], names))
    return found


def share(found: Stacks, end: str) -> float:
    """The share of the stacks that end so; 0 if there are few."""
    return sum(why == end for why, _ in found) / len(found) if len(found) > 20 else 0.0


def test_a_frame_pointer_that_leads_to_no_frame_is_not_followed(tmp_path: Path) -> None:
    subprocess.run(["gcc", "-O2", HERE / "assembly.c", "-o", tmp_path / "assembly"], check=True)
    found = stacks([tmp_path / "assembly", "none"], lambda found: share(found, "no unwinding rule") == 1)
    assert share(found, "no unwinding rule") == 1
    assert not any("[without unwinding rule]" in names for _, names in found)


def test_stacks_of_node_go_on_behind_its_built_in_functions(tmp_path: Path) -> None:
    (tmp_path / "work.js").write_text(WORKING)

    def whole(found: Stacks) -> bool:
        marked = any("[without unwinding rule]" in names for end, names in found if not end)
        return share(found, "") > 0.95 and not marked

    assert whole(stacks(["node", tmp_path / "work.js"], whole))  # before its code is known, some have that mark
