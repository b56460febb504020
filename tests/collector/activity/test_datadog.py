"""Datadog's tracers publish thread contexts: for Python and Java by libraries whose thread-local variables have no room
in static TLS, for Node in structures of V8."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from collector.activity.thread_context import ThreadContexts
from collector.bpf.sampler import Sampler
from collector.bpf.samples import DrainedSamples
from collector.processes.mapped_files import FileCache
from collector.processes.mappings import ProcessMappings
from collector.processes.watch import Watcher
from tests.collector.runtimes.v8.nodes import TRACED_BY_DATADOG, Node, install_dd_trace
from tests.waiting import wait_until

pytestmark = pytest.mark.ebpf
HERE = Path(__file__).parent
QUIET = {
    "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
    "DD_REMOTE_CONFIGURATION_ENABLED": "false",
    "DD_TRACE_AGENT_URL": "http://127.0.0.1:1",
    "DD_TRACE_OTEL_CTX_ENABLED": "true",  # needed in Node only
}
REQUESTS = 60


def run(command: list[str | Path], folder: Path | None = None) -> tuple[DrainedSamples, list[list[str]]]:
    """Samples a program that makes requests once its contexts are known. Returns them, and the lines that it prints."""
    sampler, files = Sampler(499), FileCache()
    sampler.start()
    contexts = ThreadContexts(sampler.set_context, sampler.forget, files.open)
    contexts.start()
    watcher = Watcher(ProcessMappings(files, [contexts]))
    watcher.start()
    try:
        process = subprocess.Popen(
            command, env=os.environ | QUIET, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
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
    lines = [line.split() for line in process.communicate()[0].decode().splitlines()]
    return samples, lines[-REQUESTS:]


def check(samples: DrainedSamples, requests: list[tuple[int, int, str, str, str]]) -> None:
    """`requests`: process, thread (0: any that has contexts), trace ID ("none": work for no request), start and end of
    each."""
    assert len(requests) == REQUESTS
    traces = ["none", *(row.tobytes().hex() for row in np.frombuffer(samples.trace_ids, "V16"))]
    times = samples.time_monotonic_ns
    in_request = right = 0
    for pid, tid, trace, start, end in requests:
        tids = [tid] if tid else np.unique(samples.tid[(samples.pid == pid) & (samples.context > 0)])
        mine = np.isin(samples.tid, tids) & (times >= int(start)) & (times < int(end))
        found = [traces[context] for context in samples.context[mine].tolist()]
        assert set(found) <= {trace, "none"}
        if trace != "none":
            in_request, right = in_request + len(found), right + found.count(trace)
    assert in_request > 300
    assert right >= 0.99 * in_request


def test_the_requests_of_a_program_that_ddtrace_traces_have_their_samples_from_the_first_one_on() -> None:
    samples, lines = run([sys.executable, HERE / "traced_by_ddtrace.py"])
    check(samples, [(0, int(tid), trace, start, end) for tid, trace, start, end in lines])


@pytest.mark.soak  # it fetches 36 MB, and the agent takes 20 seconds to start
@pytest.mark.skipif(not (shutil.which("mvn") and shutil.which("javac")), reason="needs Maven and a JDK")
def test_the_requests_of_a_java_program_that_datadogs_agent_traces_have_their_samples(tmp_path: Path) -> None:
    fetch = ["mvn", "-q", "-B", "-f", HERE / "dd-java-agent.xml", "dependency:copy-dependencies"]
    subprocess.run([*fetch, f"-DoutputDirectory={tmp_path}"], check=True)
    subprocess.run(["javac", "-d", tmp_path, HERE / "TracedByDatadog.java"], check=True)
    (agent,) = tmp_path.glob("dd-java-agent-*.jar")
    settings = {
        "profiling.enabled": "true", "profiling.start-force-first": "true", "profiling.start-delay": "0",
        "profiling.ddprof.enabled": "true", "trace.methods": "TracedByDatadog[request]",
        "trace.128.bit.traceid.logging.enabled": "true",
    }  # fmt: skip
    flags = [f"-Ddd.{name}={value}" for name, value in settings.items()]
    samples, lines = run(["java", f"-javaagent:{agent}", *flags, "-cp", tmp_path, "TracedByDatadog"])
    (pid,) = np.unique(samples.pid[samples.context > 0]).tolist()
    check(samples, [(pid, 0, trace, start, end) for trace, start, end in lines])


@pytest.mark.soak  # it fetches 100 MB
@pytest.mark.skipif(not TRACED_BY_DATADOG, reason="needs `make nodes`")
@pytest.mark.parametrize("node", TRACED_BY_DATADOG, ids=lambda node: node.name)
def test_the_requests_of_a_node_server_that_datadogs_tracer_traces_have_their_samples(
    tmp_path: Path, node: Node
) -> None:
    install_dd_trace(tmp_path)
    shutil.copy(HERE / "traced_by_datadog.js", tmp_path)
    flags = ["--max-semi-space-size=1", "--expose-gc", "--require", "dd-trace/init"]
    if node.major < 24:
        flags.append("--experimental-async-context-frame")
    samples, lines = run([node.path, *flags, "traced_by_datadog.js"], tmp_path)
    check(samples, [(0, int(tid), trace, start, end) for tid, trace, start, end in lines])
