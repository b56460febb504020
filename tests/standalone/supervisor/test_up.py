"""`icestream up` as a user runs it: one process to start, one to stop."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from api.terminal.client import Client
from icestream import cli
from icestream.cli import CommandError
from icestream.kafka import producer
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW
from standalone.supervisor.local_kafka import why_unavailable
from standalone.supervisor.run_info import RunInfo, read_run_info
from tests.data.windows import WINDOW_NS, window
from tests.ports import free_port
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.pipeline

Start = Callable[..., "Up"]


class Up:
    """A running `icestream up` without a collector."""

    def __init__(self, data: Path, *more: str) -> None:
        self.data = data
        self.api = f"127.0.0.1:{free_port()}"
        self.client = Client(f"http://{self.api}")
        (data / "run.json").unlink(missing_ok=True)
        self._log = data.parent / "up.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "icestream.cli", "up", "--data", str(data), "--listen", self.api,
                 "--metrics-listen", "127.0.0.1:0", "--gateway-listen", "127.0.0.1:0",
                 "--gateway-grpc-listen", "127.0.0.1:0", "--no-collector", *more],
                stdout=log, stderr=log,
            )  # fmt: skip

    def wait_ready(self) -> None:
        wait_for(lambda: self.client.json("/readyz", {})["status"] == "ready", self.log)

    @property
    def info(self) -> RunInfo:
        info = read_run_info(self.data)
        assert info is not None
        return info

    @property
    def kafka(self) -> KafkaSettings:
        return KafkaSettings(kafka=self.info.kafka)

    def total(self) -> int:
        tree = self.client.json("/api/v1/merge", {"start": "now-1h", "end": "now"})
        return int(tree["total"])

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def children(self) -> list[int]:
        return [
            int(pid) for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        ]

    def end(self, number: signal.Signals) -> float:
        """Seconds it takes to end."""
        started = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(PATIENCE_S)
        return time.monotonic() - started


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Up] = []

    def start_one(*more: str) -> Up:
        (tmp_path / "data").mkdir(exist_ok=True)
        started.append(Up(tmp_path / "data", *more))
        return started[-1]

    yield start_one
    for up in started:
        up.process.kill()
        up.process.wait()


@pytest.mark.parametrize(
    "broker",
    [pytest.param("--no-local-kafka", marks=pytest.mark.soak), pytest.param("--local-kafka", id="apache_kafka")],
)
def test_what_was_stored_is_there_after_a_restart_and_ctrl_c_ends_every_child(start: Start, broker: str) -> None:
    if broker == "--local-kafka" and (reason := why_unavailable()) and not os.environ.get("CI"):
        pytest.skip(reason)
    up = start(broker)
    up.wait_ready()
    assert ("Apache Kafka" if broker == "--local-kafka" else "memory only") in up.log()
    value = publish(up, 1)
    wait_for(lambda: up.total() == value, up.log)
    children = up.children()
    assert len(children) == (4 if broker == "--local-kafka" else 3)
    up.end(signal.SIGINT)
    assert up.process.returncode == 0
    assert not any(alive(child) for child in children)

    restarted = start(broker)
    restarted.wait_ready()
    assert restarted.total() == value
    value += publish(restarted, 2)
    wait_for(lambda: restarted.total() == value, restarted.log)
    restarted.end(signal.SIGTERM)
    assert restarted.process.returncode == 0


# In CI, test_supervisor.py shows both with small processes, and tests/chaos kills the real ones and compares totals.
@pytest.mark.soak
def test_a_part_that_is_killed_comes_back_and_the_children_of_a_killed_supervisor_end(start: Start) -> None:
    up = start("--no-local-kafka")
    up.wait_ready()
    value = publish(up, 1)
    wait_for(lambda: up.total() == value, up.log)
    store, streams, _ = up.children()
    os.kill(store, signal.SIGKILL)
    os.kill(streams, signal.SIGKILL)
    wait_for(lambda: not {store, streams} & set(up.children()) and len(up.children()) == 3, up.log)
    up.wait_ready()
    wait_for(lambda: up.total() == value, up.log)
    children = up.children()
    up.process.kill()
    wait_for(lambda: not any(alive(child) for child in children), up.log)


def test_a_data_folder_can_be_used_by_one_icestream_only(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    up = start("--no-local-kafka")
    wait_for(lambda: (up.data / "lock").exists() and (up.data / "lock").read_text() != "", up.log)
    assert cli.main(["up", "--data", str(up.data), "--listen", "127.0.0.1:0"]) == 1
    assert f"in use by another icestream (process {up.process.pid})" in capsys.readouterr().err


def test_an_address_that_is_taken_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listen = f"127.0.0.1:{listener.getsockname()[1]}"
        assert cli.main(["up", "--data", str(tmp_path), "--listen", listen]) == 1
    assert re.search(rf"cannot listen on --listen {listen}: .*; choose another", capsys.readouterr().err)


@pytest.mark.parametrize("listen", ["nonsense", "127.0.0.1:99999", "no.such.host.invalid:1"])
def test_an_invalid_address_is_one_line(listen: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["up", "--data", str(tmp_path), "--listen", listen]) == 1
    assert f"cannot listen on --listen {listen}: " in capsys.readouterr().err


def test_a_missing_kafka_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icestream.commands.topics._TIMEOUT_S", 0.5)
    arguments = ["--data", str(tmp_path), "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]
    assert cli.main(["up", "--kafka", "127.0.0.1:1", *arguments]) == 1
    assert "Kafka at 127.0.0.1:1: " in capsys.readouterr().err


def publish(up: Up, sequence: int) -> int:
    """One window of a host, ten minutes old; its value."""
    host_window = window((time.time_ns() - 600 * 10**9) // WINDOW_NS * WINDOW_NS, sequence)
    sender = producer(up.kafka)
    sender.produce(ACTIVITY, host_window.activity, key="host-0")
    sender.produce(RAW, host_window.raw, key="host-0")
    assert sender.flush(PATIENCE_S) == 0
    return host_window.value


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], log: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            if condition():
                return
        except (CommandError, OSError) as error:
            last: object = error
        else:
            last = "not yet"
        assert time.monotonic() < deadline, f"{last}\n{log()}"
        time.sleep(0.2)
