"""Runs the demo: starts icestream, lets a traced web service work, and waits until the API has everything."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from icestream.files.run_info import RunInfo, read_run_info
from standalone.demo.report import QueryRange, Report, count_functions, make_report, read_metrics, sum_requests
from standalone.supervisor.child_process import spawn, terminate
from standalone.supervisor.supervisor import ask_ready

_START_TIMEOUT_S = 120.0
_VISIBLE_TIMEOUT_S = 180.0
_NAMES_TIMEOUT_S = 60.0
_STEADY_S = 6.0
_STOP_TIMEOUT_S = 12.0
_POLL_S = 0.2
_LOOK_S = 1.0  # between looks at everything: each merges all samples, on the CPUs that are profiled
_MARGIN_NS = 10**9
_LATER_NS = 600 * 10**9
_LOG = "up.log"


class DemoError(Exception):
    """The demo cannot go on; the message says why."""


def say(text: str) -> None:
    """Prints progress for people; standard output is for the result."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def start_icestream(data: Path, frequency: int, stop: threading.Event) -> Iterator[RunInfo]:
    """Runs `icestream up` on an empty data folder. Raises DemoError, also when `stop` is set."""
    environ = os.environ | {"ICESTREAM_INTERVAL": "1", "ICESTREAM_CPU_BUDGET": "0"}
    argv = [
        sys.executable, "-m", "icestream.cli", "up", "--data", str(data), "--listen", "127.0.0.1:0",
        "--metrics-listen", "127.0.0.1:0", "--no-local-kafka", "--frequency", str(frequency),
    ]  # fmt: skip
    with (data / _LOG).open("wb") as output:
        process = spawn(argv, env=environ, output=output)
    try:
        yield _wait_started(process, data, stop)
    finally:
        terminate(process, _STOP_TIMEOUT_S)


def is_profiling(info: RunInfo) -> bool:
    """Returns whether the collector came up. Raises CommandError."""
    parts = read_metrics(info.addresses["supervisor"]).get("icestream_supervisor_part_ready", [])
    return any(part.labels.get("part") == "collect" and part.value for part in parts)


def why_not_profiling(data: Path) -> str:
    """Returns the last line that `icestream up` or the collector logged about it."""
    lines = (data / _LOG).read_text(errors="replace").splitlines()
    reasons = [line for line in lines if line.startswith("collect ") or "not profiled" in line]
    return reasons[-1] if reasons else "the collector logged nothing"


def profile_web_service(info: RunInfo, seconds: float, stop: threading.Event) -> QueryRange:
    """Runs the web service for a while, and waits until the API has its samples. Raises DemoError and CommandError."""
    start_unix_nano = time.time_ns()
    environ = os.environ | {"ICESTREAM_ACTIVITY_SOCKET": info.activity_socket}
    argv = [sys.executable, "-m", "standalone.demo.workload", "--seconds", str(seconds), "--json"]
    process = spawn(argv, env=environ, output=subprocess.DEVNULL)
    deadline = time.monotonic() + seconds + 30
    while process.poll() is None and not stop.is_set() and _pause(deadline):
        pass
    if terminate(process, 5) != 0 and not stop.is_set():
        raise DemoError(f"the web service ended with exit code {process.returncode}")
    end_unix_nano = time.time_ns() + _MARGIN_NS
    say("waiting until the API has every sample")
    address = info.addresses["api"]
    # Batches of a host are stored in order: once a later sample is there, so are all samples of the web service.
    wait_for_samples(QueryRange(address, end_unix_nano, end_unix_nano + _LATER_NS), 1, stop)
    return QueryRange(address, start_unix_nano - _MARGIN_NS, end_unix_nano)


def report_when_settled(profiled: QueryRange, profiler: str, stop: threading.Event) -> Report:
    """Returns the report once corrections, activity and names are in: when nothing changes any more, or after a minute.

    Raises CommandError.
    """
    last_state: object = None
    since = time.monotonic()
    deadline = since + _NAMES_TIMEOUT_S
    while _pause(deadline, _LOOK_S) and not stop.is_set():
        tree = profiled.tree()
        state = (tree["samples"], *count_functions(tree), *sum_requests(profiled))
        if state != last_state:
            last_state, since = state, time.monotonic()
        elif time.monotonic() - since > _STEADY_S:
            break
    return make_report(profiled, profiler)


def wait_for_samples(profiled: QueryRange, least: int, stop: threading.Event) -> None:
    """Waits until the API has `least` samples, or until `stop` is set. Raises DemoError and CommandError."""
    deadline = time.monotonic() + _VISIBLE_TIMEOUT_S
    samples = 0
    while samples < least and not stop.is_set():
        if not _pause(deadline):
            raise DemoError(f"after {_VISIBLE_TIMEOUT_S:.0f} s the API has only {samples} of {least} samples")
        samples = profiled.tree(max_nodes=2)["samples"]


def _wait_started(process: "subprocess.Popen[bytes]", data: Path, stop: threading.Event) -> RunInfo:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while _pause(deadline):
        if stop.is_set():
            raise DemoError("interrupted")
        if process.poll() is not None:
            raise DemoError(f"icestream up ended with exit code {process.returncode}:\n{_last_lines(data)}")
        info = read_run_info(data)
        if info is not None and ask_ready(info.addresses["supervisor"]) is None:
            return info
    raise DemoError(f"not ready after {_START_TIMEOUT_S:.0f} s:\n{_last_lines(data)}")


def _last_lines(data: Path) -> str:
    return "\n".join((data / _LOG).read_text(errors="replace").splitlines()[-15:])


def _pause(deadline: float, seconds: float = _POLL_S) -> bool:
    """Returns False once the monotonic time `deadline` has come, else True after `seconds`."""
    if time.monotonic() >= deadline:
        return False
    time.sleep(seconds)
    return True
