"""Keeps the processes of one machine running: starts them, forwards their logs, restarts them when they die."""

import json
import logging
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from icestream.cli import WRONG_USAGE
from icestream.settings import SettingError
from standalone.metrics import PART_READY, PART_STARTS
from standalone.supervisor.account import Account
from standalone.supervisor.child_process import spawn, terminate

FAILED_STARTS = 5
"""The supervisor gives a part up after this many starts in a row that ended before the part was ready."""
OPTIONAL_FAILED_STARTS = 2
"""The same for an optional part that never was ready."""
QUICK_DEATHS = 20
"""It also gives a part up after this many deaths in a row within 30 s of their start. An optional part is started again
after long waits: what it lacks may come, such as a file or a permission."""

_QUICK_S = 30.0
_BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_LONG_WAIT_S = 300.0
_ASK_INTERVAL_S = 0.25
_ASK_READY_S = 2.0
"""A part that is ready is asked less often: its answer costs queries to Kafka and ClickHouse."""
_LAST_LINES = 12
_TICK_S = 0.05
_RUNNING_TICK_S = 0.2

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SupervisedProcess:
    """A process to run."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    ask: Callable[[], str | None]
    """Returns None if the part is ready, else why not; may take a second."""
    stop_s: float = 2.5
    """Seconds from SIGTERM to SIGKILL."""
    optional: bool = False
    """If it does not stay up, the supervisor goes on without it, with a warning, instead of ending everything."""
    user: Account | None = None
    """Whom it runs as; None: whoever runs the supervisor."""
    replaceable: bool = True
    """Whether it can be started again; else PartLost is raised when it ends."""


class PartFailed(Exception):
    """A part does not stay up; the message has the last lines that it logged."""


class PartLost(Exception):
    """A part ended that the others cannot go on without, nor with another one in its place."""


@dataclass
class _Child:
    part: SupervisedProcess
    process: "subprocess.Popen[bytes] | None" = None
    started: float = 0.0
    ready: bool = False
    was_ready: bool = False
    """Since this process started."""
    ever_ready: bool = False
    """Since the supervisor started."""
    reason: str = "not started"
    asked: float = 0.0
    restart_at: float = 0.0
    failed_starts: int = 0
    quick_deaths: int = 0
    set_aside: bool = False
    """Whether nothing waits for it: from a long wait on, until it is ready."""
    last_lines: tuple[str, ...] = ()
    """Replaced, never changed: its reader goes on as long as a process that it started has its output."""
    reader: threading.Thread | None = None


class Supervisor:
    """Runs parts, and stops them in the reverse order of their start. Main thread only (see `spawn`)."""

    def __init__(self) -> None:
        self._children: list[_Child] = []
        self._ended = threading.Event()
        self._changing = threading.Lock()  # what an answer says of a process, and the end of that process
        threading.Thread(target=self._ask_all, name="readiness", daemon=True).start()

    def start(self, part: SupervisedProcess, process: "subprocess.Popen[bytes] | None" = None) -> None:
        """Starts a part, and restarts it whenever it dies. `process`: its first process, if that was started already,
        with a pipe for its output."""
        child = _Child(part)
        self._children.append(child)
        self._start(child, process)

    def run(self, stop: threading.Event) -> None:
        """Restarts parts until `stop` is set. Raises PartFailed, PartLost, and SettingError for a setting of a part."""
        while not stop.wait(_RUNNING_TICK_S):
            self._check_all()

    def wait_ready(self, stop: threading.Event, timeout_s: float) -> bool:
        """Waits until all parts are ready; returns False after `timeout_s` or when `stop` is set. Raises as `run`."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and not stop.wait(_TICK_S):
            self._check_all()
            if self.not_ready() is None:
                return True
        return False

    def not_ready(self) -> str | None:
        """Returns which parts are not ready and why, or None."""
        waiting = [f"{c.part.name}: {c.reason}" for c in self._children if not (c.ready or c.set_aside)]
        return "; ".join(waiting) or None

    def close(self) -> None:
        """Stops every part."""
        self._ended.set()
        for child in reversed(self._children):
            if child.process is not None:
                terminate(child.process, child.part.stop_s)
            if child.reader is not None:
                child.reader.join(1)

    def _start(self, child: _Child, process: "subprocess.Popen[bytes] | None" = None) -> None:
        child.started = time.monotonic()
        child.ready = child.was_ready = False
        child.reason = "starting"
        child.process = process or spawn(child.part.argv, child.part.env, subprocess.PIPE, child.part.user)
        child.reader = threading.Thread(target=_forward_log, args=(child, child.process), daemon=True)
        child.reader.start()
        PART_STARTS.labels(child.part.name).inc()

    def _check_all(self) -> None:
        for child in self._children:
            self._check(child)

    def _check(self, child: _Child) -> None:
        if child.process is None:
            if time.monotonic() >= child.restart_at:
                self._start(child)
        elif (code := child.process.poll()) is not None:
            self._died(child, code)

    def _died(self, child: _Child, code: int) -> None:
        alive_s = time.monotonic() - child.started
        child.quick_deaths = child.quick_deaths + 1 if alive_s < _QUICK_S else 0
        with self._changing:
            child.process, child.ready = None, False
            child.reason = f"ended with {_exit(code)}"
        child.failed_starts = 0 if child.was_ready else child.failed_starts + 1
        if child.reader is not None:
            child.reader.join(1)
        if not child.part.replaceable:
            raise PartLost(f"{child.part.name} {child.reason} after {alive_s:.1f} s")
        if code == WRONG_USAGE and child.failed_starts == 1 and not child.ever_ready:
            # Only then: the settings stay the same, so what is wrong in a later start is a file that somebody writes.
            told = child.last_lines[-1] if child.last_lines else child.reason
            raise SettingError(told.removeprefix("icestream "))
        never_ready = child.part.optional and not child.ever_ready
        failed_starts = OPTIONAL_FAILED_STARTS if never_ready else FAILED_STARTS
        if child.failed_starts >= failed_starts or child.quick_deaths >= QUICK_DEATHS:
            self._give_up(child)
            return
        wait_s = _BACKOFF_S[min(child.quick_deaths, len(_BACKOFF_S) - 1)]
        child.restart_at = time.monotonic() + wait_s
        log.warning("%s %s after %.1f s; restarting it in %.1f s", child.part.name, child.reason, alive_s, wait_s)

    def _give_up(self, child: _Child) -> None:
        log_lines = "".join(f"\n  {line}" for line in child.last_lines)
        deaths = f"{child.reason}, {child.quick_deaths} times"
        message = f"{child.part.name} does not stay up ({deaths}). Its last lines:{log_lines}"
        if not child.part.optional:
            raise PartFailed(message)
        # What never was ready is started after shorter waits at first: a file that it needs may come soon.
        wait_s = _LONG_WAIT_S if child.ever_ready else min(_LONG_WAIT_S, _BACKOFF_S[-1] * child.failed_starts)
        child.restart_at = time.monotonic() + wait_s
        if child.set_aside:
            log.warning("%s %s; starting it again in %.0f s", child.part.name, child.reason, wait_s)
        else:
            child.set_aside = True
            log.warning("%s\nicestream runs without it, and starts it again in %.0f s.", message, wait_s)

    def _ask_all(self) -> None:
        while not self._ended.wait(_ASK_INTERVAL_S):
            for child in list(self._children):
                process = child.process
                if process is not None and not (child.ready and time.monotonic() < child.asked + _ASK_READY_S):
                    reason = child.part.ask()
                    child.asked = time.monotonic()
                    with self._changing:
                        if child.process is process:
                            _answered(child, reason)
                PART_READY.labels(child.part.name).set(child.ready)


def _answered(child: _Child, reason: str | None) -> None:
    child.ready, child.reason = reason is None, reason or ""
    child.was_ready |= child.ready
    child.ever_ready |= child.ready
    child.set_aside &= not child.ready


def ask_ready(address: str, timeout_s: float = 2.0, tls: bool = False) -> str | None:
    """Asks a part's /readyz; returns None if it is ready, else why not."""
    # The certificate is for the names that others use, and need not be for this address.
    context = ssl._create_unverified_context() if tls else None
    try:
        with urllib.request.urlopen(f"http{'s' * tls}://{address}/readyz", timeout=timeout_s, context=context):
            return None
    except urllib.error.HTTPError as error:
        return _reason(error.read(10_000)) or f"/readyz answers {error.code}"
    except OSError:
        return "does not answer yet"


def _reason(body: bytes) -> str:
    try:
        answer = json.loads(body)
    except ValueError:
        return ""
    if not isinstance(answer, dict):
        return ""
    error = answer.get("error")
    return str(answer.get("reason") or (error.get("message") if isinstance(error, dict) else "") or "")


def _forward_log(child: _Child, process: "subprocess.Popen[bytes]") -> None:
    """Copies a part's output to standard error line by line, with its name in front."""
    assert process.stdout is not None
    for line in process.stdout:
        text = line.decode(errors="replace").rstrip()
        child.last_lines = (*child.last_lines[1 - _LAST_LINES :], text)
        print(f"{child.part.name:9} | {text}", file=sys.stderr, flush=True)


def _exit(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
