"""Servers that people run, as docs/tracing.md says to run them: each request is there, once, with its name.

The programs have no line of ours. The trace ID of each request is known because its client sends it (`traceparent`).
"""

import http.client
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.tracing.traced import Listener
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BIN = Path(sys.executable).parent
CALLER = "00f067aa0ba902b7"
REQUESTS = 40
NUMBER = 20_000


@contextmanager
def _running(command: Sequence[str], listener: Listener, **environ: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs a server until the end of the block, and then ends it as a service manager does."""
    ours = {
        "PATH": f"{BIN}:{os.environ['PATH']}", "ICESTREAM_ACTIVITY_SOCKET": listener.path, "PYTHONPATH": str(HERE),
        "OTEL_SERVICE_NAME": "shop", "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
    }  # fmt: skip
    process = subprocess.Popen(command, cwd=HERE, env=os.environ | ours | environ, start_new_session=True)
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _request(port: int, path: str, trace_id: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", path, headers={"traceparent": f"00-{trace_id}-{CALLER}-01"})
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, str(sum(range(NUMBER))).encode())
    connection.close()


def _serve(command: Sequence[str], listener: Listener, paths: Sequence[str], **environ: str) -> None:
    """Sends requests to a server, and checks what came of each of them."""
    port = free_port()
    expected = {f"{number:032x}": paths[number % len(paths)] for number in range(1, REQUESTS + 1)}
    with _running([part.format(port=port) for part in command], listener, **environ) as process:
        wait_until(lambda: process.poll() is not None or _answers(port))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda item: _request(port, f"/{item[1]}/{NUMBER}", item[0]), expected.items()))

    heard = listener.take()
    entries = [span for span in heard.spans if span.parent_span_id.hex() == CALLER]
    assert Counter(span.trace_id.hex() for span in entries) == Counter(dict.fromkeys(expected, 1))
    for span in entries:
        assert span.name.startswith("GET ")
        assert expected[span.trace_id.hex()] in span.name
        assert span.service == "shop"
        assert heard.thread_cpu_ns(span.trace_id.hex()) > 0
    heard.assert_no_overlap()


def _answers(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        connection.request("GET", "/none")
        connection.getresponse().read()
    except OSError:
        return False
    return True


GUNICORN = ["gunicorn", "--workers", "2", "--threads", "2", "--bind", "127.0.0.1:{port}", "--log-level", "warning"]
UVICORN = ["uvicorn", "--port", "{port}", "--log-level", "warning"]


@pytest.mark.parametrize(
    "more",
    [pytest.param([], marks=pytest.mark.soak, id="gunicorn"), pytest.param(["--preload"], id="gunicorn --preload")],
)
def test_flask(listener: Listener, more: list[str]) -> None:
    _serve(["opentelemetry-instrument", *GUNICORN, *more, "flask_shop:app"], listener, ["checkout"])


@pytest.mark.soak
def test_django(listener: Listener) -> None:
    command = ["opentelemetry-instrument", *GUNICORN, "django_shop:app"]
    _serve(command, listener, ["checkout"], DJANGO_SETTINGS_MODULE="django_settings")


@pytest.mark.parametrize(
    "more",
    [pytest.param([], marks=pytest.mark.soak, id="uvicorn"), pytest.param(["--workers", "2"], id="uvicorn --workers")],
)
def test_fastapi(listener: Listener, more: list[str]) -> None:
    _serve(["opentelemetry-instrument", *UVICORN, *more, "fastapi_shop:app"], listener, ["checkout", "report"])


@pytest.mark.soak
@pytest.mark.parametrize(
    "more", [[], ["--py-call-osafterfork"], ["--py-call-osafterfork", "--lazy-apps"]], ids=" ".join
)
def test_uwsgi(listener: Listener, more: list[str]) -> None:
    """uWSGI is a program in C with Python in it, and forks in C. It is built here once, which takes a minute."""
    built = Path(sys.prefix) / "uwsgi"
    if not (built / "bin/uwsgi").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--target", built, "--constraint", ROOT / "constraints.txt", "uwsgi"], check=True)
    command = [
        *("opentelemetry-instrument", "uwsgi", "--home", sys.prefix, "--http", "127.0.0.1:{port}"),
        *("--enable-threads", "--master", "--processes", "2", "--need-app", "--disable-logging", "--die-on-term"),
        *("--wsgi-file", "flask_shop.py", "--callable", "app", *more),
    ]
    _serve(command, listener, ["checkout"], PATH=f"{built}/bin:{BIN}:{os.environ['PATH']}")


@pytest.mark.soak
def test_celery(listener: Listener, tmp_path: Path) -> None:
    for name in ("queue", "control"):
        (tmp_path / name).mkdir()
    worker = ["celery", "-A", "celery_shop", "worker", "--concurrency", "2", "--loglevel", "warning"]
    names = {f"{number:032x}" for number in range(1, REQUESTS + 1)}
    with _running(["opentelemetry-instrument", *worker], listener, SHOP_BROKER=str(tmp_path)):
        send = (
            "from celery_shop import invoice\n"
            f"for trace_id in {sorted(names)}:\n"
            f"    invoice.apply_async(({NUMBER},), headers={{'traceparent': f'00-{{trace_id}}-{CALLER}-01'}})\n"
        )
        subprocess.run(
            [sys.executable, "-c", send], cwd=HERE, env=os.environ | {"SHOP_BROKER": str(tmp_path)}, check=True
        )
        wait_until(lambda: not list((tmp_path / "queue").iterdir()))
    heard = listener.take()
    entries = [span for span in heard.spans if span.parent_span_id.hex() == CALLER]
    assert Counter(span.trace_id.hex() for span in entries) == Counter(names)
    assert {(span.name, span.service) for span in entries} == {("run/invoice", "shop")}
    assert all(heard.thread_cpu_ns(trace_id) > 0 for trace_id in names)
