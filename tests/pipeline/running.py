"""The parts of icestream as processes, for tests that start, kill and ask them."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import KafkaException, Producer

from icestream.kafka import clients
from icestream.settings import KafkaSettings
from icestream.times import format_unix_nano
from icestream.topics import ACTIVITY, CLICKHOUSE_GROUP, RAW, SAMPLES, STACKS, STREAMS_GROUP
from icestream.v1.raw_pb2 import RawBatch
from tests.data.windows import Window
from tests.pipeline.reading import lag, messages
from tests.ports import free_port
from tests.waiting import PATIENCE_S, pause_s

T = TypeVar("T")
ICESTREAM = [sys.executable, "-m", "icestream.cli"]


class Pipeline:
    """The store and the stream worker on one broker and one data directory; every process may be killed and started."""

    def __init__(self, settings: KafkaSettings, data: Path) -> None:
        self.settings = settings
        self.data = data
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.gateway = f"127.0.0.1:{free_port()}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._producer: Producer = clients.producer(settings)

    def start(self, name: str, *more: str) -> None:
        """Starts `store`, `streams`, `gateway` or `collect` with more arguments; its log goes to DATA/NAME.log."""
        arguments = {
            "store": ["store", "--data", str(self.data), "--listen", f"127.0.0.1:{self.port}"],
            "streams": ["streams", "--metrics-listen", "127.0.0.1:0"],
            "gateway": ["gateway", "--gateway-listen", self.gateway, "--gateway-grpc-listen", "127.0.0.1:0"],
            "collect": [
                "collect",
                "--metrics-listen",
                "127.0.0.1:0",
                "--interval",
                "1",
                "--frequency",
                "99",
                "--cpu-budget",
                "0",
            ],
        }[name]
        environ = os.environ | self.settings.environ() | {
            "ICESTREAM_SYMBOL_STORE": str(self.data / "symbols"),
            "ICESTREAM_SYMBOL_CACHE": str(self.data / "symbol-cache"),
            "ICESTREAM_SPOOL": str(self.data / "spool"),
            "ICESTREAM_ACTIVITY_SOCKET": str(self.data / "activity.sock"),
        }  # fmt: skip
        with open(self.data / f"{name}.log", "ab") as log:
            self._processes[name] = subprocess.Popen(
                [*ICESTREAM, *arguments, *more], env=environ, stdout=log, stderr=log, cwd=Path(__file__).parents[2]
            )

    def pid(self, name: str) -> int:
        """The process ID of what was started."""
        return self._processes[name].pid

    def ended(self) -> list[str]:
        """The names of those that ended by themselves."""
        return [name for name, process in self._processes.items() if process.poll() is not None]

    def kill(self, name: str) -> None:
        """SIGKILL, and waits for the end."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def stop(self, name: str) -> int:
        """SIGTERM; its exit code."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGTERM)
        return process.wait(PATIENCE_S)

    def close(self) -> None:
        """Kills what still runs."""
        for name in list(self._processes):
            self.kill(name)

    def publish(self, made: Window, host: int = 0) -> None:
        """Activity, then raw, as a collector does; returns when both are acknowledged."""
        key = f"host-{host}"
        self._producer.produce(ACTIVITY, made.activity, key=key)
        self._producer.produce(RAW, made.raw, key=key)
        assert self._producer.flush(PATIENCE_S) == 0

    def produce(self, topic: str, value: bytes, key: str = "host-0") -> None:
        """Any bytes to any topic."""
        self._producer.produce(topic, value, key=key)
        assert self._producer.flush(PATIENCE_S) == 0

    def get(self, path: str, **query: Any) -> Any:
        """JSON, or text where the answer is text. Raises urllib's HTTPError."""
        with urllib.request.urlopen(self.address(path, **query), timeout=PATIENCE_S) as answer:
            body = answer.read()
            return json.loads(body) if "json" in answer.headers["content-type"] else body.decode()

    def address(self, path: str, **query: Any) -> str:
        return f"{self.url}{path}?{urllib.parse.urlencode(query)}"

    def total(self, start: int, end: int, selector: str = "{}") -> int:
        """The sum of a merge, from its collapsed lines."""
        text = self.get("/api/v1/merge", format="collapsed", selector=selector, **between(start, end))
        return sum(int(line.rpartition(" ")[2]) for line in text.splitlines())

    def wait(self, what: Callable[[], T], until: Callable[[T], bool], seconds: float = PATIENCE_S) -> T:
        """Asks again and again; fails with the last answer, and with what the processes said."""
        deadline = time.monotonic() + seconds
        last: object = None
        while (begun := time.monotonic()) < deadline:
            try:
                last = answer = what()
                if until(answer):
                    return answer
            except (OSError, urllib.error.HTTPError, KafkaException) as error:  # not up yet, or not ready
                last = error
            time.sleep(pause_s(begun, 0.2))
        raise AssertionError(f"after {seconds} s still {str(last)[:2000]}\n{self.logs()}")

    def settle(self) -> None:
        """Waits until everything that is in the topics was processed and stored, corrections too."""
        for group, topics in ((STREAMS_GROUP, (RAW, ACTIVITY)), (CLICKHOUSE_GROUP, (STACKS, SAMPLES, ACTIVITY))):
            self.wait(
                lambda group=group, topics=topics: lag(self.settings, group, topics), lambda messages: messages == 0
            )  # type: ignore[misc]

    def wait_published(self, unix_nano: int) -> None:
        """Waits until a running collector has published all windows until then."""
        self.wait(
            lambda: [RawBatch.FromString(message.value() or b"") for message in messages(self.settings, RAW)],
            lambda batches: any(batch.start_unix_nano > unix_nano for batch in batches),
        )

    def settle_after(self, unix_nano: int) -> None:
        """Waits until a running collector has published all windows until then, and until they were stored."""
        self.wait_published(unix_nano)
        self.settle()

    def logs(self) -> str:
        """The end of each process's log."""
        return "\n".join(f"--- {p.name}\n{p.read_text(errors='replace')[-3000:]}" for p in self.data.glob("*.log"))


def between(start_unix_nano: int, end_unix_nano: int) -> dict[str, str]:
    """`start` and `end` of a query."""
    return {"start": format_unix_nano(start_unix_nano), "end": format_unix_nano(end_unix_nano)}
