"""The Apache Kafka that `icestream up` starts: which users can use it, and what happens when its topics are deleted."""

import os
import re
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from icestream.commands.topics import existing
from icestream.files import run_info
from icestream.kafka.clients import admin_client, client_config
from icestream.settings import KafkaSettings, SettingError
from icestream.topics import OPTIONAL_TOPICS, TOPICS
from standalone.demo.report import read_metrics
from standalone.supervisor.account import Account
from standalone.supervisor.local_kafka import LocalKafka
from standalone.supervisor.reach import _ask_as
from standalone.supervisor.supervisor import ask_ready
from tests.standalone.supervisor.up import Up, publish, wait_for
from tests.waiting import wait_until

pytestmark = pytest.mark.kafka

STRANGER = Account("stranger", 12345, 12345, "/")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")

# https://kafka.apache.org/protocol: the key and the version of a request, and what comes after its header.
REQUESTS = {
    "produce": (0, 3, struct.pack(">hhii", -1, 1, 1000, 0)),
    "fetch": (1, 4, struct.pack(">iiiibi", -1, 0, 0, 1000, 0, 0)),
    "metadata": (3, 1, struct.pack(">i", -1)),
    "list groups": (16, 0, b""),
    "create topics": (19, 2, struct.pack(">ii?", 0, 1000, False)),
    "delete topics": (20, 1, struct.pack(">ii", 0, 1000)),
}


def answer(address: str, key: int, version: int, body: bytes) -> bytes:
    """Sends a request without a login; returns the beginning of the answer, nothing if the connection is closed."""
    host, _, port = address.rpartition(":")
    request = struct.pack(">hhih", key, version, 1, 1) + b"x" + body
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        try:
            return connection.recv(100)
        except ConnectionResetError:
            return b""


def controller(kafka: Path) -> str:
    listeners = re.search(r"CONTROLLER://(127\.0\.0\.1:\d+)", (kafka / "server.properties").read_text())
    assert listeners is not None
    return listeners[1]


@pytest.fixture(scope="module")
def up(kafka_in_id: None, kafka_jars: None) -> Iterator[Up]:
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="icestream-test-") as folder:
        os.chmod(folder, 0o755)  # others can enter it, unlike pytest's
        data = Path(folder) / "data"
        data.mkdir()
        started = Up(data, "--local-kafka")
        started.wait_ready()
        yield started
        started.process.terminate()
        started.process.wait()


@pytest.mark.parametrize("request_name", REQUESTS)
def test_without_a_login_nothing_is_answered(up: Up, local_kafka: LocalKafka, request_name: str) -> None:
    request = REQUESTS[request_name]
    assert answer(local_kafka.address, *request) != b""  # one that wants no password does answer
    assert answer(up.info.kafka, *request) == b""
    assert answer(controller(up.data / "kafka"), *request) == b""


def test_another_password_is_refused(up: Up) -> None:
    wrong = KafkaSettings(
        kafka=up.info.kafka, kafka_security_protocol="SASL_PLAINTEXT", kafka_sasl_mechanism="PLAIN",
        kafka_sasl_username="icestream", kafka_sasl_password="guessed",
    )  # fmt: skip
    told: list[str] = []
    admin = AdminClient(client_config(wrong) | {"log_level": 0, "error_cb": lambda error: told.append(error.name())})
    wait_until(lambda: admin.poll(0.1) and "_AUTHENTICATION" in told)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)


def test_the_password_is_on_no_command_line_in_no_log_and_in_one_file_of_its_user_only(up: Up) -> None:
    password = up.kafka.kafka_sasl_password
    assert len(password) > 30
    lines = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline")]
    assert not any(password.encode() in line for line in lines)
    files = [file for file in up.data.parent.rglob("*") if file.is_file() and not file.is_symlink()]
    holding = [file for file in files if password.encode() in file.read_bytes()]
    assert holding == [up.data / "kafka/clients.env"]
    assert stat.S_IMODE(holding[0].stat().st_mode) == 0o400
    assert up.data.stat().st_mode & 0o007 == 0  # the messages are in there


def test_a_command_beside_it_finds_the_login(up: Up) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ICESTREAM_")}
    for data, code in ((up.data, 0), (up.data.parent, 1)):
        done = subprocess.run(
            [sys.executable, "-m", "icestream.cli", "topics", "check", "--kafka", up.info.kafka],
            env=environ | {"ICESTREAM_DATA": str(data)}, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr


@needs_root
@pytest.mark.parametrize(("mode", "message"), [(0o750, "cannot look into"), (0o755, "you cannot read it in")])
def test_who_may_not_read_the_password_is_told_why_it_cannot_log_in(up: Up, mode: int, message: str) -> None:
    given = Namespace(kafka=up.info.kafka, data=up.data)

    def told() -> str | None:
        logged: list[str] = []
        run_info.log.addFilter(lambda record: logged.append(record.getMessage()) or True)
        try:
            settings = KafkaSettings.from_args(given, {})
        except SettingError as error:
            return str(error)
        return f"{settings.kafka_sasl_password}{logged}"

    before = stat.S_IMODE(up.data.stat().st_mode)
    up.data.chmod(mode)
    answered = _ask_as(STRANGER, told) or ""
    up.data.chmod(before)
    assert message in answered
    assert str(up.data) in answered
    assert up.kafka.kafka_sasl_password not in answered


def test_topics_that_somebody_deletes_come_back_and_samples_flow_again(up: Up) -> None:
    supervisor = up.info.addresses["supervisor"]
    assert ask_ready(supervisor) is None
    value = publish(up, 1)
    wait_for(lambda: up.total() == value, up.log)
    with admin_client(up.kafka) as admin:
        before = existing(admin)
        assert before.keys() == {topic.name for topic in (*TOPICS, *OPTIONAL_TOPICS)}
        for deletion in admin.delete_topics(list(before)).values():
            deletion.result(60)
    wait_for(lambda: "were deleted" in (ask_ready(supervisor) or ""), up.log)
    remade = read_metrics(supervisor)["icestream_supervisor_topics_remade_total"]
    assert {sample.labels["topic"]: sample.value for sample in remade} == dict.fromkeys(before, 1)
    value += publish(up, 2)
    wait_for(lambda: up.total() == value, up.log)
