"""Child processes that end with their parent."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

from standalone.supervisor.account import Account

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_NO_NEW_PRIVS = 38

_libc = ctypes.CDLL(None, use_errno=True)


def spawn(
    argv: Sequence[str],
    env: Mapping[str, str] | None = None,
    output: int | IO[bytes] | None = None,
    user: Account | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a process that the kernel kills when this process ends in any way.

    The child has its own process group: Ctrl-C in a terminal reaches only the parent, which stops its children in
    order. `output` takes the child's standard output and error, as in `subprocess`. Call it on the main thread: the
    kernel acts when the *thread* that started the child ends. The child runs as `user`, with that
    user's home in its environment, without any capability and without a way to get one; None: as this process does.
    """
    parent = os.getpid()

    def die_with_parent() -> None:
        # subprocess calls this after it has changed the user: the change would make the kernel forget the signal.
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before prctl
            os._exit(1)
        if user is not None:
            _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)

    if user is not None:
        env = user.environ(os.environ if env is None else env)
    return subprocess.Popen(
        argv, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=None if output is None else subprocess.STDOUT,
        process_group=0, preexec_fn=die_with_parent,
        user=None if user is None else user.uid, group=None if user is None else user.gid,
        extra_groups=None if user is None else [],
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
