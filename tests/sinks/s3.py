"""An S3 on this machine."""

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.ports import free_port
from tests.waiting import wait_until

# A process of its own: while DeltaTable.is_deltatable waits for an answer, no other thread of its process can run.
_SERVER = "import sys; from moto.server import main; main(['-H', '127.0.0.1', '-p', sys.argv[1]])"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URI of an empty bucket; the environment has the credentials for it."""
    import boto3  # it takes a second, which other tests save

    port = free_port()
    server = subprocess.Popen([sys.executable, "-c", _SERVER, str(port)], stderr=subprocess.DEVNULL)
    try:
        endpoint = f"http://127.0.0.1:{port}"
        _use(endpoint, monkeypatch)
        wait_until(lambda: _answers(port))
        boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket="profiles")
        yield "s3://profiles"
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def dead_object_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A server of the bucket `profiles` that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        _use(f"http://127.0.0.1:{server.getsockname()[1]}", monkeypatch)
        yield server


def _use(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
