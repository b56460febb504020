"""Child processes that end with their parent."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

_libc = ctypes.CDLL(None, use_errno=True)


def spawn(
    argv: Sequence[str], env: Mapping[str, str] | None = None, output: int | IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Starts a process that the kernel kills when this process ends in any way.

    The child has its own process group: Ctrl-C in a terminal reaches only the parent, which stops its children in
    order. `output` takes the child's standard output and error, as in `subprocess`. Call it on the main thread: the
    kernel acts when the *thread* that started the child ends.
    """
    parent = os.getpid()

    def die_with_parent() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before prctl
            os._exit(1)

    return subprocess.Popen(
        argv, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=None if output is None else subprocess.STDOUT,
        process_group=0, preexec_fn=die_with_parent,
    )  # fmt: skip


def terminate(process: subprocess.Popen[bytes], timeout_s: float) -> int:
    """Sends SIGTERM, and SIGKILL after `timeout_s`; returns the exit code (negative: the signal)."""
    if process.poll() is None:
        process.terminate()
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
