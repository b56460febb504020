"""`icestream up` in a process, for tests."""

import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from api.terminal.client import Client
from icestream.cli import CommandError
from icestream.files.run_info import RunInfo, read_run_info
from icestream.kafka.clients import producer
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW
from tests.data.windows import WINDOW_NS, window
from tests.ports import free_port
from tests.waiting import PATIENCE_S


class Up:
    """A running `icestream up` without a collector, unless `more` says otherwise. `before`: a command that runs it."""

    def __init__(self, data: Path, *more: str, before: Sequence[str] = ()) -> None:
        self.data = data
        self.api = f"127.0.0.1:{free_port()}"
        self.client = Client(f"http://{self.api}")
        (data / "run.json").unlink(missing_ok=True)
        self._log = data.parent / "up.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-m", "icestream.cli", "up", "--data", str(data), "--listen", self.api,
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
        return KafkaSettings.from_args(Namespace(kafka=self.info.kafka, data=self.data), {})

    def total(self, start: str = "now-1h") -> int:
        tree = self.client.json("/api/v1/merge", {"start": start, "end": "now"})
        return int(tree["total"])

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-8000:]

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
