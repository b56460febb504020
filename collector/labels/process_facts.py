"""Facts about a process from /proc, read once while it runs."""

import os
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from collector.labels.cgroup import Cgroup, read_cgroup
from collector.labels.environment import read_environment
from collector.labels.text import clean
from collector.processes import memory
from collector.processes.process import Process

_MAX_COMMAND_LINE = 4096


@dataclass(frozen=True)
class Facts:
    """What /proc says; "" for what could not be read: the process had ended, or it is the kernel's."""

    comm: str = ""
    executable: str = ""  # path, as the process's mount namespace has it
    group: Cgroup = field(default_factory=Cgroup)
    environment: dict[str, str] = field(default_factory=dict)  # only the variables that are needed
    command_line: str = ""  # only if it is needed
    complete: bool = True  # False: its memory, where the last two are, did not answer


def read_facts(process: Process, variables: Collection[bytes], with_command_line: bool) -> Facts:
    root = f"/proc/{process.pid}"
    comm = _start(f"{root}/comm", 64)
    if process.kernel:
        return Facts(comm=comm)
    facts = Facts(comm, read_executable(process.pid), read_cgroup(process.pid))

    def in_memory() -> Facts:
        command_line = _start(f"{root}/cmdline", _MAX_COMMAND_LINE) if with_command_line else ""
        return replace(facts, environment=read_environment(process.pid, variables), command_line=command_line)

    try:
        return memory.patiently(process.pid, in_memory)
    except TimeoutError:
        return replace(facts, complete=False)


def read_executable(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
    except OSError:
        return ""


def read_thread_name(pid: int, tid: int) -> str:
    """Returns "" if the thread is gone."""
    return _start(f"/proc/{pid}/task/{tid}/comm", 64)


def _start(path: str, limit: int) -> str:
    """Returns the first bytes as text, with spaces in place of zero bytes."""
    try:
        with open(path, "rb", buffering=0) as file:
            content = file.read(limit)
    except OSError:
        return ""
    return clean(content.rstrip(b"\0\n").replace(b"\0", b" ").decode("utf-8", "replace"), limit)
