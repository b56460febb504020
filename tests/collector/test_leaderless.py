"""Processes whose first thread has ended: in /proc, what they have is left in the folders of other threads only."""

import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from collector.batches.locations import locate
from collector.bpf.program import image_of
from collector.bpf.samples import ENDS
from collector.kernel import Kernel
from collector.labels.process_facts import read_facts
from collector.processes import pages
from collector.processes.mapped_files import FileCache
from collector.processes.mappings import ProcessMappings
from collector.processes.mounts import mounts
from collector.processes.process import exists, in_own_user_namespace, read_process, thread_of
from tests.collector.watching import watching
from tests.shares import compare_share
from tests.waiting import wait_until

LIBRARY = """#include <stdint.h>
volatile uint64_t sum;
void work_in_library(void) { for (int i = 0; i < 30000; i++) sum += i * i; }"""
READINGS = 30


class Leaderless(NamedTuple):
    pid: int
    program: Path
    library: Path  # is removed


@pytest.fixture(scope="module", params=["stay", "pass"])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Leaderless]:
    """One whose second thread stays, and one in which each thread ends soon and makes another one before."""
    folder = tmp_path_factory.mktemp("leaderless")
    program, library = folder / "leaderless", folder / "library.so"
    source = Path(__file__).parent / "programs/leaderless.c"
    subprocess.run(["gcc", "-O2", source, "-o", program, "-pthread", "-ldl"], check=True)
    shared = ["gcc", "-O2", "-fPIC", "-shared", "-x", "c", "-", "-o", library]
    subprocess.run(shared, input=LIBRARY.encode(), check=True)
    environment = os.environ | {"OTEL_SERVICE_NAME": "leaderless"}
    with subprocess.Popen([program, library, request.param], env=environment) as process:
        try:
            wait_until(lambda: not Path(f"/proc/{process.pid}/maps").read_bytes())
            yield Leaderless(process.pid, program, library)
        finally:
            process.kill()


def test_the_program_that_it_runs_is_known(running: Leaderless) -> None:
    seen = {read_process(running.pid) for _ in range(READINGS)}
    assert len(seen) == 1
    assert image_of(running.pid).start_code
    with subprocess.Popen(["true"]) as ended:
        wait_until(lambda: not Path(f"/proc/{ended.pid}/maps").read_bytes())
        assert thread_of(ended.pid) == ended.pid
    assert not exists(ended.pid)


def test_labels_are_read(running: Leaderless) -> None:
    process = read_process(running.pid)
    assert process is not None
    for _ in range(READINGS):
        facts = read_facts(process, [b"PATH"], True)
        assert (facts.executable, facts.complete) == (str(running.program), True)
        assert facts.environment == {"OTEL_SERVICE_NAME": "leaderless", "PATH": os.environ["PATH"]}
        assert facts.command_line.startswith(f"{running.program} {running.library}")


def test_files_are_identified_also_a_removed_one(running: Leaderless) -> None:
    files = FileCache()
    known = ProcessMappings(files)
    wait_until(lambda: known.notice(running.pid) and known.ranges(running.pid))
    found = {mapped_range.file.file: mapped_range for mapped_range in known.ranges(running.pid)}
    assert found[str(running.program)].file.build_id
    assert found[str(running.library)].file.build_id
    start = found[str(running.program)].start
    located = known.locate(running.pid, np.array([start], np.uint64))
    assert located.files[int(located.file[0])].file == str(running.program)
    assert any(mount.point == "/proc" for mount in mounts(running.pid))
    assert in_own_user_namespace(running.pid)
    wait_until(lambda: pages.read(running.pid, [(start, 16)])[0])
    known.close()
    files.close()


@pytest.mark.ebpf
@pytest.mark.parametrize("running", ["pass", pytest.param("stay", marks=pytest.mark.soak)], indirect=True)
def test_its_stacks_are_walked_to_their_ends(running: Leaderless) -> None:
    modules: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    with watching(499) as (host, sampler):

        def is_known() -> bool:
            ends.clear()
            modules.clear()
            time.sleep(0.3)
            samples = sampler.drain()
            located = locate(samples, host.mappings, Kernel())
            last = np.cumsum(located.depth)
            for sample in np.flatnonzero(samples.pid == running.pid).tolist():
                row = int(located.row[sample])
                frames = located.frames[last[row] - located.depth[row] : last[row]]
                modules.update({located.mappings[int(located.mapping[frame])].file for frame in frames})
                ends[ENDS[int(samples.stack_end[samples.stack[sample]])]] += 1
            return ends.total() > 30 and ends[""] > 0.9 * ends.total()

        wait_until(is_known, lambda: ends, 60.0)
        compare_share("whole stacks of a process without its first thread", 1, ends[""] / ends.total(), 0.1)
        assert min(modules[str(running.program)], modules[str(running.library)]) > 0.9 * ends.total()
