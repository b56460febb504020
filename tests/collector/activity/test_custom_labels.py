"""Custom labels, from threads to samples: a real process, real eBPF."""

import subprocess
import time
from pathlib import Path

import pytest

from collector.activity import thread_context
from collector.bpf.off_cpu import Waits
from collector.bpf.program import ContextKind
from tests.collector.activity.publishing import (
    Told,
    contexts_of_threads,
    counted,
    go_on,
    line,
    sampled,
    span_names,
    start,
)
from tests.waiting import wait_until

SOURCE = Path(__file__).parent / "custom_labels.c"
TRACE = "0af7651916cd43dd8448eb211c80319c"
EXPECTED = [(TRACE, "b7ad6b7169203331"), (TRACE[:-1] + "e", "0" * 16), None, None, None, None]
"""The trace ID and span ID of each thread."""
SPAN_NAMES = ["GET /checkout", "", "", "", "GET /user", ""]


def build(folder: Path, version: int = 1) -> Path:
    program = folder / f"labelled-{version}"
    flags = ["-O1", "-pthread", "-rdynamic", f"-DVERSION={version}"]
    subprocess.run(["gcc", *flags, SOURCE, "-o", program], check=True)
    return program


# Both loaders load one source; that the other finds the threads' variables is in test_thread_context.py.
@pytest.mark.ebpf
@pytest.mark.parametrize("loader", ["libbpf", pytest.param("bcc", marks=pytest.mark.soak)], indirect=True)
def test_samples_of_threads_carry_the_trace_and_the_span_name_of_their_custom_labels(
    tmp_path: Path, loader: str
) -> None:
    drain, tids, found = contexts_of_threads(start(build(tmp_path)), len(EXPECTED), loader)
    assert found == [{expected} for expected in EXPECTED]
    for tid, name in zip(tids, SPAN_NAMES, strict=True):
        assert set(span_names(drain, drain.tid == tid)) == {name}


@pytest.mark.ebpf
def test_a_wait_has_the_span_name_with_which_it_began_however_long_it_lasts(tmp_path: Path) -> None:
    process = start(build(tmp_path))
    tids = [int(line(process)) for _ in EXPECTED]
    assert line(process) == "ready"
    sizes = {"waits": 1 << 23, "descriptions": 1 << 25}  # room for what all programs of a busy machine wait
    with sampled(19, "libbpf", process.pid, Waits(1, 1_000_000), sizes) as sampler:
        go_on(process)
        assert line(process) == "end"  # from now on all threads wait until the process ends
        for _ in range(4):
            sampler.drain()
            time.sleep(0.2)
        process.communicate()
        waits = sampler.drain().off_cpu
    assert waits is not None
    for tid, name in zip(tids, SPAN_NAMES, strict=True):
        mine = waits.tid == tid
        assert mine.any()
        assert set(span_names(waits, mine)) == {name}


def test_custom_labels_of_an_unknown_version_are_not_read_but_counted_and_named(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(thread_context, "LINKED_S", 0.0)
    known, unknown = (start(build(tmp_path, version)) for version in (1, 2))
    for process in (known, unknown):
        while line(process) != "ready":
            pass
        told.look_at(process.pid)
    assert told.wait_for(known.pid).kind is ContextKind.CUSTOM_LABELS
    wait_until(lambda: counted("unreadable") == 1 and "ABI version 2" in caplog.text)
    assert unknown.pid not in told.places
    for process in (known, unknown):
        process.kill()
        process.communicate()
