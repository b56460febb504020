"""A local Apache Kafka (KRaft, one node, loopback only), and fetching its jars."""

import base64
import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from icestream.files import atomic_file
from icestream.kafka.clients import client_config
from icestream.settings import KafkaSettings, variable
from standalone.supervisor.account import Account
from standalone.supervisor.child_process import spawn, terminate
from standalone.supervisor.free_port import free_port

CONFIGURATION = Path(__file__).resolve().parents[1] / "kafka"
JARS = Path(sys.prefix) / "share" / "icestream" / "kafka"
"""They belong to the Python environment, as packages do: whoever may install those may fetch these."""

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 7.0
_PASSWORD = variable("kafka_sasl_password")
_HEAP = "-Xmx512m"
_COMPILING = ("-XX:TieredStopAtLevel=1", "-XX:CompileThresholdScaling=0.1")
"""Methods are compiled quickly, by the first compiler only, after a tenth of the usual calls. On one machine, requests
are few: at the usual number, much of Kafka is still interpreted minutes after its start, which takes 1.6 times the CPU.
The second compiler alone takes more CPU in these minutes than what it compiles saves."""


class KafkaUnavailable(Exception):
    """Kafka cannot run here, or did not start; the message says why, with the last lines of its log."""


def why_unavailable() -> str | None:
    """Returns why a local Kafka cannot run here, as a sentence, or None if it can."""
    if not any(JARS.glob("kafka_2.13-*.jar")):
        return f"the jars of Apache Kafka are not in {JARS}: run `icestream kafka --fetch`"
    if shutil.which("java") is None:
        return "Java is not installed: install a Java runtime, 17 or newer"
    return None


def fetch() -> Path:
    """Puts the jars into `JARS` with Maven, in place of what is there, and returns it. Raises KafkaUnavailable, and
    OSError where this user may not write."""
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailable("Maven is not installed: it fetches the jars (Debian, Ubuntu: apt install maven)")
    JARS.parent.mkdir(parents=True, exist_ok=True)
    aside = JARS.with_name("kafka.new")
    shutil.rmtree(aside, ignore_errors=True)
    argv = [
        maven, "-q", "-B", "-f", str(CONFIGURATION / "pom.xml"), "dependency:copy-dependencies",
        "-DincludeScope=runtime", f"-DoutputDirectory={aside}",
    ]  # fmt: skip
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise KafkaUnavailable(f"Maven could not fetch Apache Kafka:\n{done.stdout[-3000:]}")
    shutil.rmtree(JARS, ignore_errors=True)
    aside.rename(JARS)
    return JARS


class LocalKafka:
    """An Apache Kafka that keeps its messages in the folder `data` for the next start.

    Run it with `start` and `close`, or run its command `argv` yourself, as `user` if one is given: then the folders
    `log` and `server-log` in `data` must be that user's. It listens on `port`, or on a free port if that is taken or 0.

    With `login`, it does nothing for those who do not have the password. Then `clients` is a file with all settings of
    its clients, as variables of the environment. Only the user whom Kafka runs as, and root, can read it. The password
    stays the same from start to start.

    Raises KafkaUnavailable and OSError.
    """

    def __init__(
        self,
        data: Path,
        port: int = 0,
        template: Path = CONFIGURATION / "server.properties",
        user: Account | None = None,
        login: bool = False,
    ) -> None:
        if reason := why_unavailable():
            raise KafkaUnavailable(reason)
        data = data.resolve()
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        port, controller_port = free_port(port), free_port()
        self.address = f"127.0.0.1:{port}"
        self.clients = data / "clients.env"
        with_login = KafkaSettings(
            kafka=self.address, kafka_security_protocol="SASL_PLAINTEXT", kafka_sasl_mechanism="PLAIN",
            kafka_sasl_username="icestream", kafka_sasl_password=_password(self.clients, user),
        )  # fmt: skip
        _write_privately(self.clients, with_login.environ(), user)
        self._settings = with_login if login else KafkaSettings(kafka=self.address)
        configuration = data / "server.properties"
        protocol = "SASL_PLAINTEXT" if login else "PLAINTEXT"
        configuration.write_text(
            template.read_text().format(port=port, controller_port=controller_port, data=data, protocol=protocol)
        )
        configuration.chmod(0o644)  # whatever the umask: `user` reads it
        java = [
            "java", _HEAP, "-XX:+UseSerialGC", *_COMPILING, "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={CONFIGURATION / 'log4j2.properties'}",
            f"-Dicestream.logs={data / 'server-log'}", "-cp", f"{JARS}/*",
        ]  # fmt: skip
        if not (data / "log" / "meta.properties").exists():
            storage_tool = [*java, "kafka.tools.StorageTool"]
            _format([*storage_tool, "format", "-t", _new_cluster_id(), "-c", str(configuration)], user)
        self.argv = [*java, "kafka.Kafka", str(configuration)]
        self._output = data / "kafka.out"
        self._admin = AdminClient(client_config(self._settings) | {"log_level": 0})
        self.process: subprocess.Popen[bytes] | None = None

    def settings(self) -> KafkaSettings:
        """Returns the settings of its clients."""
        return self._settings

    def not_ready(self) -> str | None:
        """Returns why it cannot be used yet, or None if it can."""
        try:
            return None if self._admin.list_topics(timeout=1).brokers else "no broker is registered yet"
        except KafkaException:
            return "does not answer yet"

    def start(self) -> None:
        """Starts it; returns when it can be used. Main thread only (see `spawn`). Raises KafkaUnavailable."""
        with self._output.open("wb") as output:
            self.process = spawn(self.argv, output=output)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while (reason := self.not_ready()) is not None:
            if self.process.poll() is not None:
                raise KafkaUnavailable(f"Kafka ended with exit code {self.process.returncode}:\n{self._log_end()}")
            if time.monotonic() > deadline:
                terminate(self.process, 0)
                raise KafkaUnavailable(f"after {_START_TIMEOUT_S:.0f} s Kafka {reason}:\n{self._log_end()}")
            time.sleep(0.1)

    def close(self) -> None:
        if self.process is not None:
            terminate(self.process, _STOP_TIMEOUT_S)

    def _log_end(self) -> str:
        return self._output.read_bytes()[-3000:].decode(errors="replace")


def _password(clients: Path, user: Account | None) -> str:
    """Returns the password in the file of an earlier start; another one if it is missing, or was another user's."""
    with contextlib.suppress(OSError, KeyError, ValueError):
        if clients.stat().st_uid == (os.geteuid() if user is None else user.uid):
            return dict(line.split("=", 1) for line in clients.read_text().splitlines())[_PASSWORD]
    return secrets.token_urlsafe(32)


def _write_privately(file: Path, variables: Mapping[str, str], user: Account | None) -> None:
    """Writes a file that only `user` can read. None: whoever runs this process. Raises OSError."""
    with atomic_file.replacing(file, mode=0o400) as opened:
        if user is not None:
            os.fchown(opened.fileno(), user.uid, user.gid)
        opened.write("".join(f"{name}={value}\n" for name, value in variables.items()).encode())


def _new_cluster_id() -> str:
    """Returns a random cluster ID without dashes: Kafka's shell tools reject one that begins with a dash."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")


def _format(argv: list[str], user: Account | None) -> None:
    """Prepares the data folder: gives it its cluster ID."""
    process = spawn(argv, output=subprocess.PIPE, user=user)
    try:
        output, _ = process.communicate(timeout=_START_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        terminate(process, 0)
        raise KafkaUnavailable(f"Kafka did not prepare its folder within {_START_TIMEOUT_S:.0f} s") from error
    if process.returncode:
        raise KafkaUnavailable(f"Kafka could not prepare its folder:\n{output[-3000:].decode(errors='replace')}")
