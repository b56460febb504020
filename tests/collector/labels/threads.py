"""Processes to look at, and the labels that their threads get."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from collector.labels.cgroup import Cgroup, parse_cgroup
from collector.labels.container import Container, Containers
from collector.labels.thread_labels import ThreadLabels
from collector.processes.process import Process, read_process

CONTAINER = "0123456789abcdef" * 4
EXECUTABLE = os.path.basename(os.path.realpath(sys.executable))


@contextmanager
def python(program: str = "", **environ: str) -> Iterator[Process]:
    command = [sys.executable, "-c", f"{program}\nprint('ready', flush=True); input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=os.environ | environ) as run:
        assert run.stdout is not None
        run.stdout.readline()
        process = read_process(run.pid)
        assert process is not None
        yield process


def labels(known: ThreadLabels, process: Process, name: str | None = None) -> dict[str, str]:
    actual = known.labels(process.pid, process.pid, name)
    assert actual is not None
    return dict(actual)


def of(known: ThreadLabels, pid: int, tid: int, name: str | None = None) -> dict[str, str]:
    actual = known.labels(pid, tid, name)
    assert actual is not None
    return dict(actual)


class Runtime(Containers):
    def find(self, group: Cgroup, pid: int = 0) -> Container:
        return Container(name="site-web-1", service="web") if group.container_id else Container()


def in_group(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr("collector.labels.process_facts.read_cgroup", lambda folder: parse_cgroup(f"0::{path}"))
