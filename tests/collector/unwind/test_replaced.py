"""A walk during which user space replaces what it reads is cut: no frame comes from the tables of something else.

The tables are replaced again and again within microseconds, as they are behind a walk whose virtual CPU stands still.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from collector.bpf.sampler import Sampler
from collector.bpf.samples import ENDS, DrainedSamples
from collector.unwind.kernel.installed import Installed
from collector.unwind.kernel.maps import UNKNOWN_CODE, UnwindMaps
from collector.unwind.unwinding import Unwinding
from tests.collector.unwind.programs import HERE
from tests.collector.watching import watching
from tests.waiting import wait_until

pytestmark = pytest.mark.ebpf

FREQUENCY_HZ = 3999
RUN_S = 3.0
BETWEEN_S = 0.0002
COMPLETE, NO_TABLE, REPLACED = map(ENDS.index, ("", "no unwinding table", "unwinding tables replaced"))


@dataclass
class Walked:
    """A program with 61 functions one in the other, and what walks its stacks."""

    pid: int
    sampler: Sampler
    unwinding: Unwinding
    outermost: tuple[int, ...] = ()

    @property
    def maps(self) -> UnwindMaps:
        return self.unwinding._maps

    @property
    def known(self) -> Installed:
        return self.unwinding._installed[self.pid]

    def ends_while(self, replace: Callable[[], None]) -> set[int]:
        """Replaces tables for a while. Returns how the stacks ended; those that are complete must be right."""
        self.sampler.drain()
        ends: set[int] = set()
        until = time.monotonic() + RUN_S
        while time.monotonic() < until:
            for _ in range(100):
                replace()
                time.sleep(BETWEEN_S)
            for end, frames in self.stacks(self.sampler.drain()):
                assert end != COMPLETE or frames[-3:] == self.outermost, frames
                assert end != REPLACED or len(frames) == 1
                ends.add(end)
        return ends

    def stacks(self, samples: DrainedSamples) -> list[tuple[int, tuple[int, ...]]]:
        """Why each distinct stack of the program ends, and its user frames."""
        ends = np.cumsum(samples.stack_depth)
        begins = ends - samples.stack_depth + samples.stack_kernel_depth
        return [
            (int(samples.stack_end[row]), tuple(samples.frames[begins[row] : ends[row]].tolist()))
            for row in np.unique(samples.stack[samples.pid == self.pid]).tolist()
            if ends[row] > begins[row]
        ]

    def is_known(self) -> bool:
        """Whether stacks are complete, and none is cut."""
        stacks = self.stacks(self.sampler.drain())
        self.outermost = next((frames[-3:] for end, frames in stacks if len(frames) > 60), ())
        return bool(self.outermost) and all(end == COMPLETE for end, _ in stacks)


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    program = Path(tmp_path_factory.mktemp("programs")) / "chain"
    command = ["gcc", "-O2", "-fomit-frame-pointer", HERE / "chain.c", "-o", program, "-pthread"]
    subprocess.run(command, check=True)
    with (
        watching(FREQUENCY_HZ) as (host, sampler),
        subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process,
    ):
        assert process.stdin
        process.stdin.write(b"go\n")
        process.stdin.flush()
        assert host._unwinding
        walked = Walked(process.pid, sampler, host._unwinding)
        wait_until(walked.is_known)
        yield walked
        process.kill()


def test_a_walk_of_a_process_whose_mappings_became_those_of_another_is_cut(walked: Walked) -> None:
    maps, known, count = walked.maps, walked.known, len(walked.known.ranges)
    right = maps.mappings[known.first : known.first + count].copy()
    others = right.copy()
    others["bias"] += 0x40  # another file is mapped there: its rules are others
    first, second = (walked.unwinding._mappings.allocate(count) for _ in range(2))
    assert first is not None
    assert second is not None

    def replace() -> None:
        for new, old in ((first, second), (second, first)):
            maps.mappings[new : new + count] = right
            maps.set_process(walked.pid, known.image, new, count, 0)
            maps.mappings[old : old + count] = others

    assert walked.ends_while(replace) == {COMPLETE, REPLACED}
    known = walked.known  # the process may have been read again meanwhile
    maps.set_process(walked.pid, known.image, known.first, len(known.ranges), 0)
    wait_until(walked.is_known)


def test_a_walk_is_cut_that_meets_the_rows_of_a_file_for_which_another_one_made_room(walked: Walked) -> None:
    maps, known = walked.maps, walked.known
    (key,) = {mapped.file_key for mapped in known.ranges if mapped.file.file.endswith("/chain")}
    file = walked.unwinding._files.get(key)
    assert file
    chunk = maps.chunks[file.first_chunk : file.first_chunk + 1]
    right = chunk.copy()
    others = right.copy()
    others["first"] += right["count"] // 2
    others["count"] -= right["count"] // 2

    def replace() -> None:
        with walked.unwinding._lock:
            walked.unwinding._write_unknown(known, key)
            maps.count_eviction()
            chunk[:] = others
            chunk[:] = right
            walked.unwinding._write_again(known, key)

    assert {COMPLETE, REPLACED} <= walked.ends_while(replace) <= {COMPLETE, NO_TABLE, REPLACED}
    assert maps.mappings["table"][known.first : known.first + len(known.ranges)].max() != UNKNOWN_CODE
    wait_until(walked.is_known)
