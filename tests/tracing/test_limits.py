"""Forks, platforms without thread contexts, and the end of a process: each in a process of its own."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tracing.traced import OTHER, TRACE, Listener

pytestmark = pytest.mark.slow

BURN = """
import json, os, sys, threading, time
from icestream import tracing
def burn(milliseconds):
    start = time.thread_time_ns()
    while (now := time.thread_time_ns()) < start + milliseconds * 1e6:
        sum(range(100))
    return now - start
"""


def _run(code: str, *arguments: str, executable: str = sys.executable) -> str:
    done = subprocess.run(
        [executable, "-c", BURN + code, *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def test_a_forked_child_goes_on_by_itself(listener: Listener) -> None:
    printed = _run(
        f"""
tracing.start(service="forking", socket=sys.argv[1])
before = time.thread_time_ns()
with tracing.span("{TRACE}"):
    burn(5)
    child = os.fork()
    if child == 0:  # its clock begins here
        mine, before = burn(20), time.thread_time_ns()
        with tracing.span("{OTHER}"):
            other = burn(20)
        spent = time.thread_time_ns() - before
        tracing.stop()
        print(json.dumps([os.getpid(), mine, other, spent, time.thread_time_ns()]), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
spent = time.thread_time_ns() - before
tracing.stop()
print(spent)
""",
        listener.path,
    )
    of_child, of_parent = printed.splitlines()
    pid, mine, other, in_other, in_all = json.loads(of_child)
    heard = listener.take()
    heard.assert_no_overlap()
    in_child = [row for row in heard.rows if row[0] == pid]
    assert mine <= sum(row[5] for row in in_child if row[3] == TRACE) <= in_all - other
    assert other <= sum(row[5] for row in in_child if row[3] == OTHER) <= in_other
    assert sum(row[5] for row in heard.rows if row[0] != pid) <= int(of_parent)
    assert len(listener.receiver.services()) == 2


def test_a_child_forked_in_a_callback_of_asyncio_is_in_no_context_afterwards(listener: Listener) -> None:
    _run(
        f"""
import asyncio
async def main():
    with tracing.span("{TRACE}"):
        forked = os.fork()
    await asyncio.sleep(0)
    burn(30)
    return forked
tracing.start(service="forking", socket=sys.argv[1])
forked = asyncio.run(main())
tracing.stop()
if forked:
    os.waitpid(forked, 0)
""",
        listener.path,
    )
    heard = listener.take()
    heard.assert_no_overlap()
    assert heard.thread_cpu_ns(TRACE) < 20e6


def test_a_child_that_never_traces_starts_no_thread() -> None:
    printed = _run(
        """
tracing.start(service="forking", socket="/nonexistent")
child = os.fork()
if child == 0:
    print(threading.active_count(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    )
    assert printed.strip() == "1"


def test_a_child_of_a_fork_in_c_is_traced_from_its_first_request_on(listener: Listener) -> None:
    printed = _run(
        f"""
import ctypes
tracing.start(service="forking", socket=sys.argv[1])
child = ctypes.PyDLL(None).fork()  # Python's own hooks do not run, as in uWSGI
if child == 0:
    for _ in range(2):
        with tracing.span("{TRACE}"):
            burn(10)
    print(os.getpid(), flush=True)
    tracing.stop()
    os._exit(0)
os.waitpid(child, 0)
""",
        listener.path,
    )
    heard = listener.take()
    assert {row[0] for row in heard.rows} == {int(printed)}
    assert heard.thread_cpu_ns(TRACE) >= 20e6
    assert len(heard.spans) == 2


def test_what_is_left_at_the_end_of_a_process_is_sent(listener: Listener) -> None:
    _run(f'tracing.start(socket=sys.argv[1])\nwith tracing.span("{TRACE}"):\n    burn(20)\n', listener.path)
    assert listener.take().thread_cpu_ns(TRACE) >= 20e6


def test_a_process_that_raises_the_signal_that_ended_it_sends_what_is_left(listener: Listener) -> None:
    code = f"""
import signal
tracing.start(socket=sys.argv[1])
signal.raise_signal(signal.SIGCHLD)  # ends nothing
with tracing.span("{TRACE}"):
    burn(20)
signal.raise_signal(signal.SIGTERM)  # as uvicorn does
"""
    done = subprocess.run([sys.executable, "-c", BURN + code, listener.path], check=False)
    assert done.returncode == -signal.SIGTERM
    assert listener.take().thread_cpu_ns(TRACE) >= 20e6


def test_a_process_that_ends_in_a_span_ends_quietly(listener: Listener) -> None:
    printed = _run(f'tracing.start(socket=sys.argv[1])\ntracing.span("{TRACE}").__enter__()\nburn(20)\n', listener.path)
    assert printed == ""
    assert listener.take().thread_cpu_ns(TRACE) >= 20e6


def test_where_static_tls_is_full_it_says_so_once_and_activity_goes_on(listener: Listener, tmp_path: Path) -> None:
    printed = _run(
        f"""
import ctypes, platform
from icestream.tracing.elf import shared_object
for number in range(200):
    path = os.path.join(sys.argv[2], str(number))
    with open(path, "wb") as file:
        file.write(shared_object(platform.machine(), 64)[0])
    ctypes.CDLL(path)
for _ in range(2):
    tracing.start(service="full", socket=sys.argv[1])
    with tracing.span("{TRACE}"):
        burn(10)
    print(tracing.status().thread_context)
    tracing.stop()
""",
        listener.path,
        str(tmp_path),
    )
    assert printed.count("no room is left in static TLS") == 3  # both times in the status, one warning
    assert listener.take().thread_cpu_ns(TRACE) >= 20e6


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("sys.platform = 'freebsd14'", "freebsd14 is not Linux"),
        ("import platform; platform.machine = lambda: 'riscv64'", "riscv64"),
        ("import os; del os.confstr; os.confstr = lambda name: int('')", "the C library is not glibc"),
    ],
)
def test_elsewhere_activity_goes_on(listener: Listener, setting: str, reason: str) -> None:
    printed = _run(
        f"""
import icestream.tracing.record, asyncio
{setting}
tracing.start(service="elsewhere", socket=sys.argv[1])
with tracing.span("{TRACE}"):
    burn(10)
print(tracing.status().thread_context)
""",
        listener.path,
    )
    assert reason in printed
    assert listener.take().thread_cpu_ns(TRACE) >= 10e6


def test_where_no_file_can_be_executed_a_memfd_serves() -> None:
    printed = _run(
        """
import tempfile
def full(*_, **__): raise OSError("no space left")
tempfile.mkstemp = full
tracing.start(service="memfd", socket="/nonexistent")
print(tracing.status().thread_context, "/memfd:otel_thread_ctx" in open("/proc/self/maps").read())
"""
    )
    assert printed.strip() == "published True"


def test_the_package_needs_only_the_standard_library_and_is_imported_fast() -> None:
    printed = _run(
        """
import subprocess
for _ in range(5):
    done = subprocess.run([sys.executable, "-S", "-c", '''
import sys, time
start = time.process_time()
import icestream.tracing
print(time.process_time() - start, "asyncio" in sys.modules, [m for m in sys.modules if m.startswith("icestream")])
'''], capture_output=True, text=True, cwd=os.getcwd())
    print(done.stdout.strip(), done.stderr.strip())
"""
    )
    runs = [line.split(maxsplit=2) for line in printed.splitlines()]
    assert min(float(seconds) for seconds, _, _ in runs) < 0.15  # of CPU; other programs may slow down some of the runs
    for _, with_asyncio, rest in runs:
        assert with_asyncio == "False"
        assert rest.count("icestream.") == rest.count("icestream.tracing")


def test_an_event_loop_that_is_not_asyncios_own_gives_no_wrong_context(listener: Listener) -> None:
    printed = _run(
        f"""
import asyncio
from icestream.tracing import asyncio_hook
tracing.start(service="other-loop", socket=sys.argv[1])
asyncio_hook.uninstall()  # as if the loop called back in machine code
asyncio_hook._followed_loops = (str,)
async def work():
    with tracing.span("{TRACE}"):
        burn(10)
        await asyncio.sleep(0)
        burn(10)
asyncio.run(work())
""",
        listener.path,
    )
    assert printed == ""
    assert listener.take().thread_cpu_ns(TRACE) == 0
    assert len(listener.heard.spans) == 1
