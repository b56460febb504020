"""Facts about a process from /proc, read once while it runs."""

import os
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from collector.labels.cgroup import Cgroup, read_cgroup
from collector.labels.environment import read_environment
from collector.labels.script import interpreter_of, script_of
from collector.labels.text import clean
from collector.processes import memory
from collector.processes.process import Process, folder_of

_MAX_COMMAND_LINE = 4096
_ATTEMPTS = 5


@dataclass(frozen=True)
class Facts:
    """What /proc says; "" for what could not be read: the process had ended, or it is the kernel's."""

    comm: str = ""
    executable: str = ""  # path, as the process's mount namespace has it
    group: Cgroup = field(default_factory=Cgroup)
    environment: dict[str, str] = field(default_factory=dict)  # only the variables that are needed
    command_line: str = ""  # only if it is needed
    script: str = ""  # what an interpreter runs
    complete: bool = True  # False: its memory, where the last two are, did not answer


def read_facts(process: Process, variables: Collection[bytes], with_command_line: bool) -> Facts:
    comm = _start(f"/proc/{process.pid}/comm", 64)
    if process.kernel:
        return Facts(comm=comm)
    for _ in range(_ATTEMPTS):
        folder = folder_of(process.pid)
        facts = _read(process.pid, folder, Facts(comm), variables, with_command_line)
        if folder_of(process.pid) == folder:  # else its thread ended meanwhile, and something may be missing
            break
    return facts


def _read(pid: int, folder: str, facts: Facts, variables: Collection[bytes], with_command_line: bool) -> Facts:
    facts = replace(facts, executable=_executable(folder), group=read_cgroup(folder))

    def in_memory() -> Facts:
        is_interpreter = bool(interpreter_of(facts.executable))
        content = _bytes(f"{folder}/cmdline", _MAX_COMMAND_LINE) if with_command_line or is_interpreter else b""
        return replace(
            facts,
            environment=read_environment(folder, variables),
            command_line=_text(content, _MAX_COMMAND_LINE) if with_command_line else "",
            script=clean(script_of(facts.executable, content.decode("utf-8", "replace").split("\0"))),
        )

    try:
        return memory.patiently(pid, in_memory)
    except TimeoutError:
        return replace(facts, complete=False)


def _executable(folder: str) -> str:
    try:
        return os.readlink(f"{folder}/exe").removesuffix(" (deleted)")
    except OSError:
        return ""


def read_thread_name(pid: int, tid: int) -> str:
    """Returns "" if the thread is gone."""
    return _start(f"/proc/{pid}/task/{tid}/comm", 64)


def _start(path: str, limit: int) -> str:
    return _text(_bytes(path, limit), limit)


def _bytes(path: str, limit: int) -> bytes:
    """Returns the first bytes."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(limit)
    except OSError:
        return b""


def _text(content: bytes, limit: int) -> str:
    """Returns bytes as text, with spaces in place of zero bytes."""
    return clean(content.rstrip(b"\0\n").replace(b"\0", b" ").decode("utf-8", "replace"), limit)
