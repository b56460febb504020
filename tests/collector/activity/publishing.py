"""Processes that publish trace contexts, and what a sampler is told of them."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from prometheus_client import REGISTRY

from collector.activity.thread_context import ThreadContexts
from collector.bpf.off_cpu import Waits
from collector.bpf.program import Image, TlsPlace, image_of
from collector.bpf.sampler import Sampler
from collector.bpf.samples import DrainedSamples
from collector.processes.mapped_files import FileCache
from collector.processes.mapped_ranges import MappedRangeReader
from collector.processes.process import read_process
from tests.waiting import wait_until


class Told:
    """What a sampler would have been told, and when."""

    def __init__(self) -> None:
        self.places: dict[int, TlsPlace] = {}
        self.at: dict[int, float] = {}
        self.files = FileCache()
        self.contexts = ThreadContexts(self.set_context, self.forget, self.files.open)

    def set_context(self, pid: int, place: TlsPlace, image: Image) -> None:
        assert image == image_of(pid)
        self.places[pid], self.at[pid] = place, time.monotonic()

    def forget(self, pid: int) -> None:
        del self.places[pid]

    def look_at(self, pid: int) -> None:
        """As if events or /proc had told what the process maps."""
        look_at(self.contexts, self.files, pid)

    def wait_for(self, pid: int) -> TlsPlace:
        wait_until(lambda: pid in self.places)
        return self.places[pid]


def look_at(contexts: ThreadContexts, files: FileCache, pid: int) -> None:
    process = read_process(pid)
    assert process
    contexts.mapped(process, MappedRangeReader(files).read(pid))


@contextmanager
def sampled(
    frequency_hz: int, loader: str, pid: int, waits: Waits | None = None, sizes: dict[str, int] | None = None
) -> Iterator[Sampler]:
    """A sampler that reads the contexts of a process."""
    sampler = Sampler(frequency_hz, loader, sizes, waits)
    sampler.start()
    try:
        with read_contexts(sampler, pid):
            yield sampler
    finally:
        sampler.close()


@contextmanager
def read_contexts(sampler: Sampler, pid: int) -> Iterator[None]:
    """Has a sampler read the contexts of a process."""
    files = FileCache()
    contexts = ThreadContexts(sampler.set_context, sampler.forget, files.open)
    contexts.start()
    try:
        look_at(contexts, files, pid)
        wait_until(lambda: pid in contexts.publishers())
        assert contexts.publishers()[pid].place
        yield
    finally:
        contexts.close()


def contexts(drain: DrainedSamples) -> list[tuple[str, str]]:
    """The trace ID and span ID of each context."""
    return [
        (trace.tobytes().hex(), span.tobytes().hex())
        for trace, span in zip(np.frombuffer(drain.trace_ids, "V16"), np.frombuffer(drain.span_ids, "V8"), strict=True)
    ]


def span_names(samples: DrainedSamples, chosen: np.ndarray) -> list[str]:
    """The name of the span of each of these samples; "" if there is none."""
    if samples.span_name is None:
        return [""] * len(samples.pid[chosen])
    names = ["", *samples.span_names]
    return [names[row] for row in samples.span_name[chosen].tolist()]


def counted(state: str) -> float | None:
    return REGISTRY.get_sample_value("icestream_collector_thread_context_processes", {"state": state})


def start(*command: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)


def line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout
    return process.stdout.readline().decode().strip()


def go_on(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin
    process.stdin.write(b"\n")


def contexts_of_threads(
    process: subprocess.Popen[bytes], threads: int, loader: str
) -> tuple[DrainedSamples, list[int], list[set[tuple[str, str] | None]]]:
    """Samples a program of threads.h. Returns the samples, the ID of each thread, and the contexts of its samples."""
    tids = [int(line(process)) for _ in range(threads)]
    assert line(process) == "ready"
    drain = samples_until_end(process, loader)
    traces, found = [None, *contexts(drain)], []
    for tid in tids:
        mine = drain.context[drain.tid == tid].tolist()
        assert len(mine) > 50
        found.append({traces[context] for context in mine})
    return drain, tids, found


def samples_until_end(process: subprocess.Popen[bytes], loader: str) -> DrainedSamples:
    """Lets a process work that said that it is ready, until it says "end", and lets it end."""
    with sampled(3999, loader, process.pid) as sampler:
        go_on(process)
        assert line(process) == "end"
        drain = sampler.drain()
    process.communicate()
    return drain
