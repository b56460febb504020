"""Finds the field of task_struct that says whether a thread runs, with a process that sleeps and is then stopped."""

import os
import signal
import time
from pathlib import Path

from collector.bpf.loaders.kernel_reader import KernelReader, ReaderProgram, Rows
from collector.bpf.loaders.loader import LoadError

_RUNNING, _INTERRUPTIBLE = 0, 1  # include/linux/sched.h
_STOPPED = (4, 0x104)  # with TASK_WAKEKILL
_PATIENCE_S = 10.0


def state_rows(program: ReaderProgram, size: int) -> Rows:
    """Returns the offsets below `size` that may hold the state of a thread. Forks. Raises OSError and LoadError."""
    sleep_pipe, address_pipe = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with KernelReader(program) as kernel:
                os.write(address_pipe[1], kernel.task.to_bytes(8, "little"))
            os.close(sleep_pipe[1])
            os.read(sleep_pipe[0], 1)  # until it is killed
        finally:
            os._exit(0)
    try:
        os.close(address_pipe[1])
        task = int.from_bytes(os.read(address_pipe[0], 8), "little")
        return _rows(program, pid, task, size) if task else set()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for fd in (*sleep_pipe, address_pipe[0]):
            os.close(fd)


def _rows(program: ReaderProgram, pid: int, task: int, size: int) -> Rows:
    _wait_until(pid, b"S")
    with KernelReader(program) as kernel:
        runs, sleeps = _numbers(kernel, kernel.task, size), _numbers(kernel, task, size)
        os.kill(pid, signal.SIGSTOP)
        _wait_until(pid, b"T")
        stopped = _numbers(kernel, task, size)
    return {
        (4 * i,)
        for i, states in enumerate(zip(runs, sleeps, stopped, strict=False))
        if states[:2] == (_RUNNING, _INTERRUPTIBLE) and states[2] in _STOPPED
    }


def _numbers(kernel: KernelReader, task: int, size: int) -> memoryview:
    return memoryview(kernel.read(task, size)).cast("I")


def _wait_until(pid: int, state: bytes) -> None:
    """Waits until a process is in a state, a letter of proc(5). Raises LoadError."""
    until = time.monotonic() + _PATIENCE_S
    while Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != state:
        if time.monotonic() > until:
            raise LoadError(f"a child process does not reach the state {state.decode()}")
        time.sleep(0.001)
