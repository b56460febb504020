"""Series labels of sampled threads.

`service`: OTEL_SERVICE_NAME or service.name in OTEL_RESOURCE_ATTRIBUTES of the process's environment, else what its
activity said, else the executable's name. Nothing else of the environment is kept.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from collector.process import Process

KERNEL_SERVICE = "[kernel]"
MAX_THREADS = 65_536
_MAX_VALUE = 200
_MAX_ENVIRON = 1 << 20
_CONTAINER = re.compile(r"(?<![0-9a-f])([0-9a-f]{64})(?![0-9a-f])")

Labels = tuple[tuple[str, str], ...]
"""(name, value) pairs sorted by name, without empty values."""


@dataclass(frozen=True)
class _Known:
    process: Process
    declared: str  # the service as the environment says
    executable: str
    comm: str
    container_id: str
    unit: str


class ThreadLabels:
    """Labels by thread. `notice` reads what /proc says of a process while it is there; `of` answers from memory."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._known: dict[int, _Known] = {}
        self._services: dict[int, str] = {}
        self._threads: dict[tuple[int, int], tuple[str, Labels]] = {}

    def notice(self, process: Process) -> None:
        """Reads a process that is new or runs another program since."""
        known = self._known.get(process.pid)
        if known is None or known.process != process:
            if known is not None and known.process.start_ticks != process.start_ticks:
                self._services.pop(process.pid, None)
            self._known[process.pid] = _read(process)
            self._forget_threads(process.pid)

    def declare(self, pid: int, service: str) -> None:
        """The service that a process's activity names."""
        if self._services.get(pid) != _clean(service):
            self._services[pid] = _clean(service)
            self._forget_threads(pid)

    def of(self, pid: int, tid: int, thread_name: str | None) -> Labels:
        """Labels of a thread. Without a name it is read from /proc, and is the process's where that is gone."""
        found = self._threads.get((pid, tid))
        if found is not None and thread_name in (None, found[0]):
            return found[1]
        known = self._known.get(pid)
        name = thread_name or _text(f"/proc/{pid}/task/{tid}/comm") or (known.comm if known else "")
        labels = self._labels(pid, known, _clean(name))
        while len(self._threads) >= MAX_THREADS:
            del self._threads[next(iter(self._threads))]
        self._threads[pid, tid] = (name, labels)
        return labels

    def forget(self, pids: Iterable[int]) -> None:
        """Processes that have ended."""
        for pid in pids:
            self._known.pop(pid, None)
            self._services.pop(pid, None)
            self._forget_threads(pid)

    def _labels(self, pid: int, known: _Known | None, thread_name: str) -> Labels:
        if known is None and pid:
            known = _Known(Process(pid, 0, (0, 0, 0), False), "", "", thread_name, "", "")
        if known is None or known.process.kernel:
            service = KERNEL_SERVICE
        else:
            service = known.declared or self._services.get(pid, "") or known.executable or known.comm
        labels = {
            "comm": known.comm if known else thread_name,
            "container_id": known.container_id if known else "",
            "executable": known.executable if known else "",
            "host": self._host,
            "service": service,
            "thread_name": thread_name,
            "unit": known.unit if known else "",
        }
        return tuple((name, value[:_MAX_VALUE]) for name, value in labels.items() if value)

    def _forget_threads(self, pid: int) -> None:
        for key in [key for key in self._threads if key[0] == pid]:
            del self._threads[key]


def _read(process: Process) -> _Known:
    root = f"/proc/{process.pid}"
    container_id, unit = parse_cgroup(_text(f"{root}/cgroup"))
    try:
        executable = os.path.basename(os.readlink(f"{root}/exe").removesuffix(" (deleted)"))
    except OSError:
        executable = ""
    declared = declared_service(_bytes(f"{root}/environ"))
    comm = _text(f"{root}/comm")
    return _Known(process, declared, _clean(executable), comm, container_id, unit)


def declared_service(environ: bytes) -> str:
    """The service that OpenTelemetry's variables name, or ""; OTEL_SERVICE_NAME wins, as its specification says."""
    attributes = ""
    for entry in environ.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name == b"OTEL_SERVICE_NAME" and value:
            return _clean(value.decode("utf-8", "replace"))
        if name == b"OTEL_RESOURCE_ATTRIBUTES":
            attributes = value.decode("utf-8", "replace")
    for pair in attributes.split(","):
        key, _, text = pair.partition("=")
        if key.strip() == "service.name":
            return _clean(unquote(text))
    return ""


def parse_cgroup(text: str) -> tuple[str, str]:
    """(container ID, systemd unit) of /proc/PID/cgroup; "" for what it does not tell."""
    paths = [line.split(":", 2)[2] for line in text.splitlines() if line.count(":") >= 2]
    containers = (match[1] for path in paths for match in [_CONTAINER.search(path)] if match)
    return next(containers, ""), next(_units(paths), "")


def _units(paths: list[str]) -> Iterator[str]:
    for path in paths:
        for part in reversed(path.split("/")):
            if part.endswith((".service", ".scope")) and not _CONTAINER.search(part):
                yield part


def _text(path: str) -> str:
    text = _bytes(path).decode("utf-8", "replace").rstrip("\n")
    return text if path.endswith("cgroup") else _clean(text)


def _bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_ENVIRON)
    except OSError:
        return b""


def _clean(text: str) -> str:
    """Without control characters, which programs may put into their names."""
    return "".join(c if c.isprintable() else "?" for c in text).strip()
