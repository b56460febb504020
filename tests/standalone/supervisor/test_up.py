"""`icestream up` as a user runs it: one process to start, one to stop."""

import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from icestream import cli
from standalone.supervisor.local_kafka import why_unavailable
from tests.standalone.supervisor.up import Up, alive, publish, wait_for
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.pipeline

Start = Callable[..., Up]


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
    assert len(children) == 4
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
    _, store, streams, _ = up.children()
    os.kill(store, signal.SIGKILL)
    os.kill(streams, signal.SIGKILL)
    wait_for(lambda: not {store, streams} & set(up.children()) and len(up.children()) == 4, up.log)
    up.wait_ready()
    wait_for(lambda: up.total() == value, up.log)
    children = up.children()
    up.process.kill()
    wait_for(lambda: not any(alive(child) for child in children), up.log)


def test_everything_starts_again_with_another_broker_when_the_in_process_one_dies(start: Start) -> None:
    up = start("--no-local-kafka")
    up.wait_ready()
    value = publish(up, 1)
    wait_for(lambda: up.total() == value, up.log)
    before = up.info.kafka
    os.kill(up.children()[0], signal.SIGSEGV)  # as a request can that somebody made up
    wait_for(lambda: up.info.kafka != before, up.log)
    assert "broker ended with signal 11" in up.log()
    up.wait_ready()
    value += publish(up, 2)
    wait_for(lambda: up.total() == value, up.log)
    up.end(signal.SIGTERM)
    assert up.process.returncode == 0


def test_a_data_folder_can_be_used_by_one_icestream_only(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    up = start("--no-local-kafka")
    wait_for(lambda: bool(up.children()), up.log)
    assert cli.main(["up", "--data", str(up.data), "--listen", "127.0.0.1:0"]) == 1
    lock = up.data / "lock"
    assert f"in use by another icestream: {lock} is locked by process {up.process.pid}" in capsys.readouterr().err


def test_an_address_that_is_taken_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listen = f"127.0.0.1:{listener.getsockname()[1]}"
        assert cli.main(["up", "--data", str(tmp_path), "--listen", listen]) == 1
    assert re.search(rf"cannot listen on --listen {listen}: .*; choose another", capsys.readouterr().err)


@pytest.mark.parametrize("listen", ["nonsense", "127.0.0.1:99999", "no.such.host.invalid:1"])
def test_an_invalid_address_is_one_line(listen: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["up", "--data", str(tmp_path), "--listen", listen]) == 1
    assert f"cannot listen on --listen {listen}: " in capsys.readouterr().err


def test_an_impossible_setting_of_a_part_ends_everything_with_its_line(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ICESTREAM_API_MAX_STACKS", "many")
    up = start("--no-local-kafka")
    assert up.process.wait(PATIENCE_S) == 2
    assert up.log().splitlines()[-1] == "icestream up: store: ICESTREAM_API_MAX_STACKS: expected int, got 'many'"
    assert "restarting" not in up.log()


def test_a_missing_kafka_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icestream.commands.topics._TIMEOUT_S", 0.5)
    arguments = ["--data", str(tmp_path), "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]
    assert cli.main(["up", "--kafka", "127.0.0.1:1", *arguments]) == 1
    assert "Kafka at 127.0.0.1:1: " in capsys.readouterr().err
