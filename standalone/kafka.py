"""A local Apache Kafka (KRaft, one node, loopback only) from the jars that `make kafka` fetched to deploy/kafka/lib."""

import base64
import shutil
import socket
import subprocess
import time
import uuid
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from icestream.settings import KafkaSettings
from standalone.child import end, spawn

HOME = Path(__file__).resolve().parent.parent / "deploy" / "kafka"

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 7.0
_HEAP = "-Xmx512m"


class KafkaUnavailable(Exception):
    """Kafka cannot be run here, or did not start; the message says why, with what it logged last."""


def missing(home: Path = HOME) -> str | None:
    """Why a local Kafka cannot be run: a sentence, or None when it can."""
    if not any((home / "lib").glob("kafka_2.13-*.jar")):
        return f"the jars of Apache Kafka are not in {home / 'lib'}: run `make kafka`"
    if shutil.which("java") is None:
        return "Java is not installed: run `make kafka`"
    return None


class LocalKafka:
    """An Apache Kafka, from construction until `close`; its messages stay in `data` for the next start.

    Listens on `port`, or on a free one where that is taken or 0. Raises KafkaUnavailable. Main thread only, see
    `spawn`.
    """

    def __init__(self, data: Path, port: int = 0, home: Path = HOME) -> None:
        if reason := missing(home):
            raise KafkaUnavailable(reason)
        self.data = data.resolve()
        self.data.mkdir(parents=True, exist_ok=True)
        port, controller_port = _free_ports(port)
        self.address = f"127.0.0.1:{port}"
        self._configuration = self.data / "server.properties"
        template = (home / "server.properties").read_text()
        self._configuration.write_text(template.format(port=port, controller_port=controller_port, data=self.data))
        self._java = [
            "java", _HEAP, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={home / 'log4j2.properties'}", f"-Dicestream.logs={self.data}",
            "-cp", f"{home / 'lib'}/*",
        ]  # fmt: skip
        self._output = self.data / "kafka.out"
        self._format()
        self.process = self._start()

    def settings(self) -> KafkaSettings:
        """Settings of its clients."""
        return KafkaSettings(kafka=self.address)

    def close(self) -> None:
        end(self.process, _STOP_TIMEOUT_S)

    def _format(self) -> None:
        """Gives the data directory its cluster ID, once."""
        if (self.data / "log" / "meta.properties").exists():
            return
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
        done = subprocess.run(
            [*self._java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._configuration)],
            capture_output=True, text=True, check=False, timeout=_START_TIMEOUT_S,
        )  # fmt: skip
        if done.returncode:
            raise KafkaUnavailable(f"Kafka could not format {self.data}:\n{(done.stdout + done.stderr)[-2000:]}")

    def _start(self) -> "subprocess.Popen[bytes]":
        with self._output.open("wb") as output:
            process = spawn([*self._java, "kafka.Kafka", str(self._configuration)], output=output)
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            if process.poll() is not None:
                raise KafkaUnavailable(f"Kafka ended with exit code {process.returncode}:\n{self._tail()}")
            try:
                if admin.list_topics(timeout=1).brokers:
                    return process
            except KafkaException:
                pass
            if time.monotonic() > deadline:
                end(process, 0)
                raise KafkaUnavailable(f"Kafka did not answer within {_START_TIMEOUT_S:.0f} s:\n{self._tail()}")
            time.sleep(0.1)

    def _tail(self) -> str:
        return self._output.read_bytes()[-3000:].decode(errors="replace")


def _free_ports(wanted: int) -> tuple[int, int]:
    """`wanted` or else a free port, and another free one."""
    with socket.socket() as one, socket.socket() as two:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", wanted))
        except OSError:
            one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]
