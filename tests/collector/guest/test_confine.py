"""What a process that parses files of strangers cannot do."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PREPARE = """
import ctypes, os, resource, socket, subprocess, sys, threading
from collector.guest.confine import confine

def system_call(*arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(*arguments) == -1:
        raise OSError(ctypes.get_errno(), "refused")

confine()
"""


def _run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PREPARE + code, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "code",
    [
        "socket.socket()",
        "socket.socketpair()",
        "subprocess.run(['/bin/true'])",
        "os.execv('/bin/true', ['true'])",
        "os.fork()",
        "os.kill(os.getppid(), 0)",
        "system_call(234, os.getppid(), os.getppid(), 0)",  # tgkill
        "system_call(129, os.getppid(), 0, 0)",  # rt_sigqueueinfo
        "system_call(297, os.getppid(), os.getppid(), 0, 0)",  # rt_tgsigqueueinfo
        "system_call(424, 0, 0, 0, 0)",  # pidfd_send_signal
        "resource.prlimit(os.getppid(), resource.RLIMIT_CORE, (0, 0))",
        "os.utime(sys.argv[1])",
        "os.removexattr(sys.argv[1], 'user.name')",
        "open(sys.argv[1], 'wb')",
        "open(sys.argv[1], 'ab')",
        "open(sys.argv[1], 'r+b')",
        "os.unlink(sys.argv[1])",
        "os.rename(sys.argv[1], sys.argv[1] + '2')",
        "os.chmod(sys.argv[1], 0o777)",
        "os.truncate(sys.argv[1], 0)",
        "os.mkdir(sys.argv[1] + '2')",
        "os.symlink('/', sys.argv[1] + '2')",
        "os.mkfifo(sys.argv[1] + '2')",
        "os.chroot('/')",
    ],
)
def test_it_is_refused(code: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("content")
    done = _run(code, str(path))
    assert "PermissionError" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "content"


def test_it_has_no_capability_and_gets_none_back() -> None:
    done = _run("print(open('/proc/self/status').read())")
    status = dict(line.split(":", 1) for line in done.stdout.splitlines() if ":" in line)
    assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}
    assert status["NoNewPrivs"].strip() == "1"
    assert status["Seccomp"].strip() == "2"


def test_threads_start_although_the_system_call_that_hides_its_flags_is_unknown() -> None:
    done = _run("system_call(435, 0, 0)")
    assert "[Errno 38]" in done.stderr


def test_it_still_limits_and_ends_itself() -> None:
    code = "resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); print('limited', flush=True); os.abort()"
    done = _run(code)
    assert (done.stdout, done.returncode) == ("limited\n", -signal.SIGABRT)


def test_it_still_reads_files_and_works_in_threads() -> None:
    code = "t = threading.Thread(target=lambda: print(len(open(sys.argv[1]).read()) > 0)); t.start(); t.join()"
    assert _run(code, __file__).stdout == "True\n"
