"""Thread contexts as Datadog's addon has them in Node, and what only looks like them. test_datadog.py has real ones."""

import subprocess
from pathlib import Path

import pytest

from tests.collector.activity.publishing import contexts_of_threads, start

SOURCE = Path(__file__).parent / "node_contexts.c"
CONTEXT = b"0123456789abcdef".hex(), b"ghijklmn".hex()
EXPECTED = [CONTEXT] * 3 + [None] * 22
"""The trace ID and span ID of each thread."""


def build(folder: Path) -> Path:
    program = folder / "node-contexts"
    subprocess.run(["gcc", "-O1", "-no-pie", "-pthread", "-rdynamic", SOURCE, "-o", program], check=True)
    return program


# Both loaders load one source; that the other finds the threads' variables is in test_thread_context.py.
@pytest.mark.ebpf
@pytest.mark.parametrize("loader", ["libbpf", pytest.param("bcc", marks=pytest.mark.soak)], indirect=True)
def test_samples_of_threads_have_the_contexts_that_v8_keeps_and_nothing_that_looks_like_them(
    tmp_path: Path, loader: str
) -> None:
    _, _, found = contexts_of_threads(start(build(tmp_path)), len(EXPECTED), loader)
    assert found == [{expected} for expected in EXPECTED]
