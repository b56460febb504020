"""`icestream-trace`: programs without a line of ours in them are traced, and so are their children."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from icestream.tracing.command import AUTOSTART
from tests.tracing.traced import TRACE, Listener

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TRACE_COMMAND = [sys.executable, "-m", "icestream.tracing.command"]
APPLICATION = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

assert "icestream" not in sys.argv[0]
trace.set_tracer_provider(TracerProvider())
with trace.get_tracer("shop").start_as_current_span("GET /checkout"):
    sorted(str(number) for number in range(100_000))
"""
CHILDREN = """
import multiprocessing, os, subprocess, sys
CHILD = '''
from icestream import tracing
with tracing.span("{trace}", name="in a child"):
    sorted(str(number) for number in range(100_000))
'''

def work(name):
    from icestream import tracing
    with tracing.span("{trace}", name=name):
        sorted(str(number) for number in range(100_000))

if __name__ == "__main__":
    for method in ("spawn", "fork", "forkserver"):
        worker = multiprocessing.get_context(method).Process(target=work, args=(method,))
        worker.start()
        worker.join()
    subprocess.run([sys.executable, "-c", CHILD], check=True)
""".replace("{trace}", TRACE)


def _trace(*command: str | Path, cwd: Path, socket: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    ours = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "OTEL_SERVICE_NAME")}
    return subprocess.run(
        [*TRACE_COMMAND, *command], cwd=cwd, env=ours | {"ICESTREAM_ACTIVITY_SOCKET": socket} | environ,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def test_a_program_with_opentelemetry_is_traced_without_a_line_of_ours(listener: Listener, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APPLICATION)
    done = _trace(sys.executable, "shop.py", cwd=tmp_path, socket=listener.path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    heard = listener.take()
    assert [(span.name, span.service) for span in heard.spans] == [("GET /checkout", "shop")]
    assert sum(row[5] for row in heard.rows) > 0


def test_every_child_is_traced_however_it_starts(listener: Listener, tmp_path: Path) -> None:
    (tmp_path / "works.py").write_text(CHILDREN)
    done = _trace(sys.executable, "works.py", cwd=tmp_path, socket=listener.path)
    assert (done.returncode, done.stderr) == (0, "")
    spans = listener.take().spans
    assert sorted(span.name for span in spans) == ["fork", "forkserver", "in a child", "spawn"]
    assert {span.service for span in spans} == {"works"}


@pytest.mark.parametrize(
    ("flags", "program", "service"),
    [
        (["--service", "shop"], ["-m", "timeit", "-n1", "-r1"], "shop"),
        ([], ["-m", "timeit", "-n1", "-r1"], "timeit"),
        ([], ["-c", "pass"], "python"),
    ],
)
def test_the_service_is_what_was_said_or_the_program(
    flags: list[str], program: list[str], service: str, listener: Listener, tmp_path: Path
) -> None:
    done = _trace(*flags, sys.executable, *program, cwd=tmp_path, socket=listener.path)
    assert done.returncode == 0
    listener.take()
    assert list(listener.receiver.services().values()) == [service]


def test_the_program_keeps_its_own_sitecustomize_its_path_and_its_exit_code(listener: Listener, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/sitecustomize.py").write_text("import builtins\nbuiltins.customized = True\n")
    code = "import sys, signal, os; print(customized, sys.path); os.kill(os.getpid(), signal.SIGTERM); signal.pause()"
    environ = {"PYTHONPATH": str(tmp_path / "mine")}
    done = _trace(sys.executable, "-c", code, cwd=tmp_path, socket=listener.path, **environ)
    assert done.returncode == -signal.SIGTERM
    assert done.stdout.startswith("True ")
    assert AUTOSTART not in done.stdout
    assert str(tmp_path / "mine") in done.stdout


def test_a_python_that_has_no_icestream_tracing_takes_the_one_of_the_command(
    listener: Listener, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    code = f"""
import sys
from icestream import tracing
with tracing.span("{TRACE}", name="elsewhere"):
    sum(range(1_000_000))
print([path for path in sys.path if path.startswith("{ROOT}")])
"""
    done = _trace(tmp_path / "venv/bin/python", "-c", code, cwd=tmp_path, socket=listener.path)
    assert (done.stdout, done.stderr) == ("[]\n", "")
    assert [span.name for span in listener.take().spans] == ["elsewhere"]


def test_a_program_that_cannot_be_traced_runs_and_says_so_once(tmp_path: Path, listener: Listener) -> None:
    (tmp_path / "asyncio.py").write_text("raise RuntimeError('not this asyncio')\n")  # hides Python's own
    code = "import subprocess, sys; print('runs', flush=True); subprocess.run([sys.executable, '-c', 'print(1)'])"
    done = _trace(sys.executable, "-c", code, cwd=tmp_path, socket=listener.path, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "runs\n1\n")
    assert done.stderr == "icestream-trace: this program is not traced: RuntimeError('not this asyncio')\n"


@pytest.mark.parametrize(("command", "code"), [("no-such-program", 127), ("/", 126)])
def test_a_program_that_cannot_be_run_is_named(command: str, code: int, tmp_path: Path) -> None:
    done = _trace(command, cwd=tmp_path, socket="/nonexistent")
    assert done.returncode == code
    assert done.stderr.startswith(f"icestream-trace: {command}: ")
