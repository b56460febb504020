"""Series labels of sampled threads.

`service`: OTEL_SERVICE_NAME or service.name in OTEL_RESOURCE_ATTRIBUTES of the process's environment, else what its
activity said, else the executable's name. Nothing else of the environment is kept.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from collector.process import Process

KERNEL_SERVICE = "[kernel]"
MAX_PROCESSES = 16_384
MAX_THREADS = 4096  # of one process
_MAX_VALUE = 200
_MAX_ENVIRON = 1 << 20
_CONTAINER = re.compile(r"(?<![0-9a-f])([0-9a-f]{64})(?![0-9a-f])")

Labels = tuple[tuple[str, str], ...]
"""(name, value) pairs sorted by name, without empty values."""


@dataclass(frozen=True)
class _Told:
    """What /proc told of a process."""

    process: Process
    service: str  # as the environment declares it
    executable: str
    comm: str
    container_id: str
    unit: str


@dataclass
class _Known:
    told: _Told | None
    threads: dict[int, tuple[str, Labels]] = field(default_factory=dict)  # name and labels of each


class ThreadLabels:
    """Labels by thread. `notice` reads what /proc says of a process while it is there; `of` answers from memory."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._known: dict[int, _Known] = {}
        self._services: dict[int, str] = {}

    def notice(self, process: Process) -> None:
        """Reads a process that is new or runs another program since."""
        known = self._known.get(process.pid)
        if known is None or known.told is None or known.told.process != process:
            self._add(process.pid, _Known(_read(process)))

    def declare(self, services: Mapping[int, str]) -> None:
        """The services that processes name in their activity, of all that do."""
        services = {pid: _clean(service) for pid, service in services.items()}
        for pid, service in services.items():
            if self._services.get(pid) != service and pid in self._known:
                self._known[pid].threads.clear()
        self._services = services

    def of(self, pid: int, tid: int, thread_name: str | None) -> Labels:
        """Labels of a thread. Without a name it is read from /proc, and is the process's where that is gone."""
        known = self._known.get(pid) or self._add(pid, _Known(None))
        found = known.threads.get(tid)
        if found is not None and thread_name in (None, found[0]):
            return found[1]
        name = thread_name or _text(f"/proc/{pid}/task/{tid}/comm") or (known.told.comm if known.told else "")
        labels = self._labels(pid, known.told, _clean(name))
        if len(known.threads) >= MAX_THREADS:
            known.threads.clear()
        known.threads[tid] = (name, labels)
        return labels

    def forget(self, pids: Iterable[int]) -> None:
        """Processes that have ended."""
        for pid in pids:
            self._known.pop(pid, None)

    def _add(self, pid: int, known: _Known) -> _Known:
        self._known.pop(pid, None)
        self._known[pid] = known
        if len(self._known) > MAX_PROCESSES:
            del self._known[next(iter(self._known))]
        return known

    def _labels(self, pid: int, told: _Told | None, thread_name: str) -> Labels:
        if pid == 0 or (told is not None and told.process.kernel):
            service = KERNEL_SERVICE
        elif told is None:
            service = self._services.get(pid) or thread_name
        else:
            service = told.service or self._services.get(pid) or told.executable or told.comm
        labels = {
            "comm": told.comm if told else thread_name,
            "container_id": told.container_id if told else "",
            "executable": told.executable if told else "",
            "host": self._host,
            "service": service,
            "thread_name": thread_name,
            "unit": told.unit if told else "",
        }
        return tuple((name, value[:_MAX_VALUE]) for name, value in labels.items() if value)


def _read(process: Process) -> _Told:
    root = f"/proc/{process.pid}"
    container_id, unit = parse_cgroup(_text(f"{root}/cgroup"))
    try:
        executable = os.path.basename(os.readlink(f"{root}/exe").removesuffix(" (deleted)"))
    except OSError:
        executable = ""
    service = declared_service(_bytes(f"{root}/environ"))
    comm = _text(f"{root}/comm")
    return _Told(process, service, _clean(executable), comm, container_id, unit)


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
