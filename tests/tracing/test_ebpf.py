"""What the real sampler reads at the moment of a sample, against the intervals of the application itself."""

import bisect
import json
import subprocess
import sys
from collections import defaultdict

import numpy as np
import pytest

from collector.activity.thread_context import ThreadContexts
from collector.bpf.sampler import Sampler
from collector.bpf.samples import DrainedSamples
from collector.processes.mapped_files import FileCache
from collector.processes.mapped_ranges import MappedRangeReader
from collector.processes.process import read_process
from tests.not_clocked import NotClocked
from tests.tracing.traced import Listener
from tests.waiting import wait_until

REQUESTS = 120
CPU_MS = 20

pytestmark = pytest.mark.ebpf


@pytest.mark.alone  # beside other programs, when the thread has a CPU and when it is sampled may be in step
def test_every_sample_of_a_busy_thread_carries_the_request_it_works_for(listener: Listener) -> None:
    sampler = Sampler(999)
    sampler.start()
    files = FileCache()
    contexts = ThreadContexts(sampler.set_context, sampler.forget, files.open)
    contexts.start()
    workload = subprocess.Popen(
        [
            *(sys.executable, "-m", "standalone.demo.workload", "--wait", "--socket", listener.path),
            *("--requests", str(REQUESTS), "--cpu-ms", str(CPU_MS)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert workload.stdin
    assert workload.stdout
    workload.stdout.readline()
    listener.take()
    process = read_process(workload.pid)
    assert process
    contexts.mapped(process, MappedRangeReader(files).read(workload.pid))
    wait_until(lambda: workload.pid in contexts.publishers())
    not_clocked = NotClocked()
    workload.stdin.write("go\n")
    workload.stdin.close()
    drained = []
    requests = []
    for line in workload.stdout:
        requests.append(json.loads(line))
        drained.append(sampler.drain())
    workload.wait()
    most = 1.03 + not_clocked.share()
    drained.append(sampler.drain())
    contexts.close()
    sampler.close()

    heard = listener.take()
    heard.assert_no_overlap()
    thread_cpu_ns = sum(request["thread_cpu_ns"] for request in requests)
    assert len(requests) == REQUESTS
    assert sum(row[5] for row in heard.rows) == pytest.approx(thread_cpu_ns, rel=0.03)
    samples = [sample for drain in drained for sample in _samples_of(drain, workload.pid)]
    with_trace = [sample for sample in samples if sample[2]]
    # A virtual CPU that is away for a moment takes no samples, and the threads' clocks may count that time.
    assert 0.93 < len(with_trace) * 1e9 / 999 / thread_cpu_ns < most
    covering = defaultdict(list)
    for _, tid, start, trace, end, _ in sorted(heard.rows, key=lambda row: row[2]):
        covering[tid].append((start, end, trace))
    for time_ns, tid, trace in with_trace:
        intervals = covering[tid]
        start, end, expected = intervals[bisect.bisect_right(intervals, time_ns, key=lambda row: row[0]) - 1]
        assert start <= time_ns < end
        assert trace == expected


def _samples_of(samples: DrainedSamples, pid: int) -> list[tuple[int, int, str]]:
    """Time, thread and trace ID ("": none)."""
    traces = ["", *(row.tobytes().hex() for row in np.frombuffer(samples.trace_ids, "V16"))]
    mine = samples.pid == pid
    columns = (samples.time_monotonic_ns[mine].tolist(), samples.tid[mine].tolist(), samples.context[mine].tolist())
    return [(at, tid, traces[context]) for at, tid, context in zip(*columns, strict=True)]
