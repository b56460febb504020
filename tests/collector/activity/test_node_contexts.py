"""Thread contexts as Datadog's addon has them in Node, and what only looks like them. test_datadog.py has real ones."""

import subprocess
from pathlib import Path

import pytest

from collector.activity import thread_context
from collector.bpf.program import ContextKind
from tests.collector.activity.publishing import Told, contexts_of_threads, counted, line, start
from tests.waiting import wait_until

SOURCE = Path(__file__).parent / "node_contexts.c"
CONTEXT = b"0123456789abcdef".hex(), b"ghijklmn".hex()
EXPECTED = [CONTEXT] * 3 + [None] * 22
"""The trace ID and span ID of each thread."""


def build(folder: Path, *flags: str) -> Path:
    program = folder / f"node{''.join(flags)}"
    subprocess.run(["gcc", "-O1", "-no-pie", "-pthread", "-rdynamic", *flags, SOURCE, "-o", program], check=True)
    return program


# Both loaders load one source; that the other finds the threads' variables is in test_thread_context.py.
@pytest.mark.ebpf
@pytest.mark.parametrize("loader", ["libbpf", pytest.param("bcc", marks=pytest.mark.soak)], indirect=True)
def test_samples_of_threads_have_the_contexts_that_v8_keeps_and_nothing_that_looks_like_them(
    tmp_path: Path, loader: str
) -> None:
    _, _, found = contexts_of_threads(start(build(tmp_path)), len(EXPECTED), loader)
    assert found == [{expected} for expected in EXPECTED]


def test_contexts_of_an_old_addon_of_node_are_not_read_but_counted_and_named(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(thread_context, "LINKED_S", 0.0)
    known, old = start(build(tmp_path)), start(build(tmp_path, "-DOLD"))
    for process in (known, old):
        while line(process) != "ready":
            pass
        told.look_at(process.pid)
    assert told.wait_for(known.pid).kind is ContextKind.NODE_CONTEXT
    wait_until(lambda: counted("unreadable") == 1 and "before 5.19" in caplog.text)
    assert old.pid not in told.places
    for process in (known, old):
        process.kill()
        process.communicate()
