"""Pyroscope's Rust SDK pushes a program. `make soak` runs it: building takes minutes."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gateway.http.app import create_app
from gateway.publisher import BatchPublisher
from icestream.http.server import Server
from icestream.topics import DEFAULT_PROFILE_TYPE
from tests.gateway.served import Gateway
from tests.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed"),
]
SDK = Path(__file__).parent / "rustsdk"
WORK_S = 3


def test_the_rust_sdk_pushes_a_program(gateway: Gateway, tmp_path: Path) -> None:
    source = shutil.copytree(SDK, tmp_path / "rustsdk")
    target = Path(os.environ.get("CARGO_TARGET_DIR", source / "target"))
    subprocess.run(["cargo", "build", "--release"], cwd=source, check=True, timeout=1800)
    publisher = BatchPublisher(gateway.settings)
    server = Server(create_app(gateway.settings, publisher), "127.0.0.1:0")
    server.start()
    program = [target / "release/rustsdk", f"http://{server.address}", str(WORK_S)]
    subprocess.run(program, check=True, timeout=PATIENCE_S)
    server.close()
    publisher.close()
    batches = gateway.batches()
    assert {batch.profile_type for batch in batches} == {DEFAULT_PROFILE_TYPE}
    wanted = {"service": "sdk.rust", "region": "eu", "endpoint": "checkout"}
    assert any(wanted.items() <= dict(labels).items() for batch in batches for labels in batch.series)
    assert any("busy_function" in text for batch in batches for text in batch.strings)
    # The CPU of one thread: other work may have had the processor for a part of the time.
    assert 0.1 * WORK_S < sum(int(batch.sample_value.sum()) for batch in batches) / 1e9 < 1.5 * WORK_S
