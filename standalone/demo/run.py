"""The demo: everything embedded, a traced web service at work, and what icestream can say about its requests."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from standalone.demo.asking import read_metrics, until
from standalone.demo.result import Result, Window, count_frames, measure
from standalone.supervisor.child_process import end, spawn
from standalone.supervisor.supervisor import ask_ready

_START_TIMEOUT_S = 120.0
_VISIBLE_TIMEOUT_S = 60.0
_NAMES_TIMEOUT_S = 60.0
_STEADY_S = 6.0
_STOP_TIMEOUT_S = 12.0
_MARGIN_NS = 10**9


class DemoError(Exception):
    """The demo cannot go on; the message says why."""


@dataclass(frozen=True)
class Demo:
    """A running icestream with what the demo made it see."""

    window: Window
    profiler: str

    @property
    def page(self) -> str:
        return f"http://{self.window.address}/"


def say(text: str) -> None:
    """Progress, for people: standard output is for the result."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def running(data: Path, frequency: int, stop: threading.Event) -> Iterator[dict[str, Any]]:
    """`icestream up` on an empty data folder; what it noted in run.json. Raises DemoError, also when `stop` is set."""
    log = data / "up.log"
    environ = os.environ | {"ICESTREAM_INTERVAL": "1", "ICESTREAM_CPU_BUDGET": "0"}
    argv = [
        sys.executable, "-m", "icestream.cli", "up", "--data", str(data), "--listen", "127.0.0.1:0",
        "--metrics-listen", "127.0.0.1:0", "--no-local-kafka", "--frequency", str(frequency),
    ]  # fmt: skip
    with log.open("wb") as output:
        process = spawn(argv, env=environ, output=output)
    try:
        yield _wait_started(process, data, log, stop)
    finally:
        end(process, _STOP_TIMEOUT_S)


def profiled(found: dict[str, Any]) -> bool:
    """Whether the collector came up."""
    parts = read_metrics(found["addresses"]["supervisor"]).get("icestream_supervisor_part_ready", [])
    return any(sample.labels["part"] == "collect" and sample.value for sample in parts)


def why_not_profiled(data: Path) -> str:
    """What `icestream up`, or the collector, said about it last."""
    lines = (data / "up.log").read_text(errors="replace").splitlines()
    said = [line for line in lines if line.startswith("collect ") or "not profiled" in line]
    return said[-1] if said else "the collector said nothing"


def work(found: dict[str, Any], seconds: float, stop: threading.Event) -> Demo:
    """Runs the web service for a while, and waits until what it did can be asked for. Raises DemoError."""
    start = time.time_ns()
    environ = os.environ | {"ICESTREAM_ACTIVITY_SOCKET": found["activity_socket"]}
    argv = [sys.executable, "-m", "standalone.demo.workload", "--seconds", str(seconds), "--json"]
    process = spawn(argv, env=environ, output=subprocess.DEVNULL)
    deadline = time.monotonic() + seconds + 30
    while process.poll() is None and not stop.is_set() and until(deadline):
        pass
    if end(process, 5) != 0 and not stop.is_set():
        raise DemoError(f"the web service ended with exit code {process.returncode}")
    last = time.time_ns()
    say("waiting until everything that was published can be found")
    address = found["addresses"]["api"]
    later = Window(address, last + _MARGIN_NS, last + 600 * 10**9)  # batches of a host come in order
    wait_for_samples(later, 1, stop)
    return Demo(Window(address, start - _MARGIN_NS, last + _MARGIN_NS), "ebpf")


def settle(demo: Demo, stop: threading.Event) -> Result:
    """The numbers, once corrections and names have come: when nothing changes any more, or after a minute."""
    last: object = None
    since = time.monotonic()
    deadline = since + _NAMES_TIMEOUT_S
    while until(deadline) and not stop.is_set():
        tree = demo.window.ask("/api/v1/merge", format="tree", max_nodes=200_000)
        state = (tree["samples"], *count_frames(tree))
        if state != last:
            last, since = state, time.monotonic()
        elif time.monotonic() - since > _STEADY_S:
            break
    return measure(demo.window, demo.profiler)


def wait_for_samples(window: Window, least: int, stop: threading.Event) -> None:
    """Until the API finds so many, or `stop` is set. Raises DemoError."""
    deadline = time.monotonic() + _VISIBLE_TIMEOUT_S
    samples = 0
    while samples < least and not stop.is_set():
        if not until(deadline):
            raise DemoError(f"after {_VISIBLE_TIMEOUT_S:.0f} s only {samples} of {least} samples can be found")
        samples = window.ask("/api/v1/merge", format="tree", max_nodes=2)["samples"]


def _wait_started(process: "subprocess.Popen[bytes]", data: Path, log: Path, stop: threading.Event) -> dict[str, Any]:
    deadline = time.monotonic() + _START_TIMEOUT_S
    note = data / "run.json"
    while until(deadline):
        if stop.is_set():
            raise DemoError("interrupted")
        if process.poll() is not None:
            raise DemoError(f"icestream up ended with exit code {process.returncode}:\n{_tail(log)}")
        if note.exists():
            found: dict[str, Any] = json.loads(note.read_text())
            if ask_ready(found["addresses"]["supervisor"]) is None:
                return found
    raise DemoError(f"not ready after {_START_TIMEOUT_S:.0f} s:\n{_tail(log)}")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])
