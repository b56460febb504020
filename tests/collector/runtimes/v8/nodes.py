"""The versions of Node that are on this machine, and all functions on the heap of one that runs."""

import contextlib
import functools
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from collector.elf.reader import file_reader
from collector.runtimes.v8.heap import Heap, ReadAreas
from collector.runtimes.v8.layout import V8Layout
from collector.runtimes.v8.symbols import Engine, find_engine

FETCHED = Path(__file__).parent / "fetched/node_modules"
"""`make nodes` puts them there."""
_MAPS = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) r.-. \S+ \S+ 0\s*(\[heap\])?$", re.MULTILINE)

_COMPILED = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) r.xp \S+ \S+ 0\s*$", re.MULTILINE)


class Node(NamedTuple):
    name: str
    path: str

    @property
    def major(self) -> int:
        return int(self.name.split(".")[0])


@functools.cache
def nodes() -> list[Node]:
    """The one in the path, and those that were fetched, each version once."""
    found = {}
    for path in [shutil.which("node"), *sorted(map(str, FETCHED.glob("*/bin/node")))]:
        if path:
            version = subprocess.run([path, "--version"], capture_output=True, text=True).stdout.strip().lstrip("v")
            found.setdefault(version, Node(version, path))
    return sorted(found.values(), key=lambda node: node.major)


TRACED_BY_DATADOG = [node for node in nodes() if node.major >= 22]


def install_dd_trace(folder: Path) -> None:
    """Fetches Datadog's tracer for Node, 100 MB."""
    command = "npm install --silent --no-fund --no-audit --ignore-scripts --prefix . dd-trace@6.21.0"
    subprocess.run(command.split(), cwd=folder, check=True)


@functools.cache
def engine(path: str) -> Engine:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        found = find_engine(file_reader(descriptor))
    finally:
        os.close(descriptor)
    assert found is not None
    return found


@contextlib.contextmanager
def running(command: Sequence[str], folder: Path | None = None) -> Iterator[int]:
    """Runs a program in a folder until it has printed a line, and then stops it; yields its process ID."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder)
    try:
        assert process.stdout
        assert process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def functions_on_heap(pid: int, heap: Heap, shared_type: int) -> list[int]:
    """Returns the addresses of the SharedFunctionInfos of a process: words that point to a map of that type."""
    found: list[int] = []
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory, open(f"/proc/{pid}/maps") as maps:
        for start, end in ((int(line[0], 16), int(line[1], 16)) for line in _MAPS.findall(maps.read())):
            with contextlib.suppress(OSError):
                words = np.frombuffer(os.pread(memory.fileno(), end - start, start), np.uint64)
                candidates = np.unique(words[(words & np.uint64(3)) == 1]).tolist()
                kinds = heap.types_of(candidates)
                maps_of_functions = [at for at, kind in zip(candidates, kinds, strict=True) if kind == shared_type]
                found += (start + 8 * np.flatnonzero(np.isin(words, np.array(maps_of_functions, np.uint64)))).tolist()
    return found


def compiled_on_heap(pid: int, heap: Heap, layout: V8Layout) -> list[tuple[int, int]]:
    """Returns addresses in all code that V8 has compiled, each with the start of its mapping: behind words that point
    to a map of its type."""
    found: list[tuple[int, int]] = []
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory, open(f"/proc/{pid}/maps") as maps:
        for start, end in ((int(line[0], 16), int(line[1], 16)) for line in _COMPILED.findall(maps.read())):
            words = np.frombuffer(os.pread(memory.fileno(), end - start, start), np.uint64)
            candidates = np.flatnonzero((words & np.uint64(3)) == 1)
            kinds = heap.types_of(words[candidates].tolist())
            rows = [
                row for row, kind in zip(candidates.tolist(), kinds, strict=True) if kind == layout.tables.stream_type
            ]
            found += [(start, start + 8 * row + layout.tables.stream_bytes) for row in rows]
    return found


@contextlib.contextmanager
def areas_of(pid: int) -> Iterator[ReadAreas]:
    """Yields what reads the memory of a process."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        yield lambda areas: [_read(memory.fileno(), *area) for area in areas]


def _read(memory: int, address: int, size: int) -> bytes | None:
    try:
        data = os.pread(memory, size, address) if size else b""
    except (OSError, OverflowError, struct.error):
        return None
    return data if len(data) == size else None
