"""What brings the eBPF programs into the kernel: a test that takes `loader` runs once with each. And a busy program."""

import subprocess
from pathlib import Path

import pytest


@pytest.fixture(params=["libbpf", "bcc"])
def loader(request: pytest.FixtureRequest) -> str:
    """For the setting `loader`. Where a loader lacks its packages, its tests fail: deploy/setup.sh installs them."""
    return str(request.param)


@pytest.fixture(scope="session")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("busy") / "busy"
    flags = ["-O1", "-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread"]
    subprocess.run(["gcc", *flags, Path(__file__).parent / "programs" / "busy.c", "-o", program], check=True)
    return program
