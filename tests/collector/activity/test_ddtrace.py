"""Datadog's tracer publishes thread contexts by a library whose thread-local variables have no room in static TLS."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from collector.activity.thread_context import ThreadContexts
from collector.bpf.sampler import Sampler
from collector.processes.mapped_files import FileCache
from collector.processes.mappings import ProcessMappings
from collector.processes.watch import Watcher
from tests.waiting import wait_until

TRACED = Path(__file__).parent / "traced_by_ddtrace.py"
QUIET = {"DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false", "DD_REMOTE_CONFIGURATION_ENABLED": "false"}


@pytest.mark.ebpf
def test_the_requests_of_a_program_that_ddtrace_traces_have_their_samples_from_the_first_one_on() -> None:
    sampler, files = Sampler(499), FileCache()
    sampler.start()
    contexts = ThreadContexts(sampler.set_context, sampler.forget, files.open)
    contexts.start()
    watcher = Watcher(ProcessMappings(files, [contexts]))
    watcher.start()
    try:
        process = subprocess.Popen(
            [sys.executable, TRACED], env=os.environ | QUIET, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        wait_until(lambda: (known := contexts.publishers().get(process.pid)) and known.place)
        assert process.stdin
        process.stdin.write(b"\n")
        process.stdin.flush()
        while process.poll() is None:
            sampler.poll()
            time.sleep(0.1)
        samples = sampler.drain()
    finally:
        watcher.close()
        contexts.close()
        sampler.close()
    requests = [line.split() for line in process.communicate()[0].decode().splitlines()]
    assert len(requests) == 60
    traces = ["", *(row.tobytes().hex() for row in np.frombuffer(samples.trace_ids, "V16"))]
    in_request = right = 0
    for tid, trace, start, end in requests:
        times = samples.time_monotonic_ns
        mine = (samples.tid == int(tid)) & (times >= int(start)) & (times < int(end))
        found = [traces[context] for context in samples.context[mine].tolist()]
        in_request, right = in_request + len(found), right + found.count(trace)
        assert set(found) <= {trace, ""}
    assert in_request > 300
    assert right >= 0.99 * in_request
