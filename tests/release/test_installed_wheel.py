"""The wheels as a user installs them, used in an empty folder on a machine that has no checkout."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from icestream.files.run_info import read_run_info
from tests.waiting import PATIENCE_S, wait_until
from tests.wheels import ROOT, build_wheels

pytestmark = pytest.mark.soak  # packages are installed, and two icestreams started, for minutes

UV = str(Path(sys.executable).with_name("uv"))
ANY = [word for name in ("--listen", "--metrics-listen", "--gateway-listen", "--gateway-grpc-listen")
       for word in (name, "127.0.0.1:0")]  # fmt: skip


class Installed:
    """An installed `icestream`. It runs in `folder`, where the checkout cannot be seen."""

    def __init__(self, command: list[str], folder: Path) -> None:
        # In a mount namespace of its own, an empty folder hides the checkout.
        self.command = [
            "unshare",
            "--mount",
            "sh",
            "-c",
            f"mount -t tmpfs none '{ROOT}' && exec \"$@\"",
            "sh",
            *command,
        ]
        self.folder = folder
        ours = ("ICESTREAM_", "PYTHON", "VIRTUAL_ENV")
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self.command, *arguments], cwd=self.folder, env=self.environ, capture_output=True, text=True,
            timeout=10 * PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{arguments}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    folder = tmp_path_factory.mktemp("wheels")
    build_wheels(folder)
    return folder


@pytest.fixture(scope="module")
def installed(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """In a fresh environment, as `pip install --find-links FOLDER 'icestream[standalone]'` does it."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python, constraints = str(folder / "venv/bin/python"), str(ROOT / "constraints.txt")
    install = ["pip", "install", "-q", "--python", python, "--find-links", str(wheels), "-c", constraints]
    subprocess.run([UV, *install, "icestream[standalone]"], check=True)
    (folder / "empty").mkdir()
    yield Installed([str(folder / "venv/bin/icestream")], folder / "empty")
    shutil.rmtree(folder)


def test_nothing_of_the_checkout_is_seen(installed: Installed) -> None:
    """Else the other tests would show nothing."""
    listed = subprocess.check_output([*installed.command[:6], "ls", ROOT], text=True)
    assert listed == ""
    assert installed.run("--version").startswith("icestream ")


@pytest.mark.parametrize("arguments", [["collect", "--check"], ["gateway", "--help"], ["topics", "--help"]])
def test_a_command_works(installed: Installed, arguments: list[str]) -> None:
    assert installed.run(*arguments)


def test_the_demo_profiles_this_machine(installed: Installed) -> None:
    shown = json.loads(installed.run("demo", "--once", "--json", "--seconds", "5"))
    assert shown["profiler"] == "ebpf"
    assert shown["samples"] > 100


def test_everything_runs_with_a_local_kafka_and_a_job(installed: Installed) -> None:
    assert "share/icestream/kafka" in installed.run("kafka", "--fetch")
    data, log = installed.folder.parent / "data", installed.folder.parent / "up.log"
    command = [*installed.command, "up", "--data", str(data), *ANY]
    with log.open("wb") as output:
        up = subprocess.Popen(command, cwd=installed.folder, env=installed.environ, stdout=output, stderr=output)
    try:
        wait_until(lambda: " ready: " in log.read_text() or up.poll() is not None, log.read_text)
        assert "Apache Kafka at 127.0.0.1:" in log.read_text()
        info = read_run_info(data)
        assert info is not None
        installed.environ["ICESTREAM_URL"] = f"http://{info.addresses['api']}"

        def total() -> int:
            return int(json.loads(installed.run("query", "merge", "--json"))["total"])

        wait_until(total, log.read_text)
        replayed = installed.run("replay", "--data", str(data), "--from", "now-30m", "--to", "now-3m")
        assert "0 samples" in replayed
    finally:
        up.send_signal(signal.SIGTERM)
        assert up.wait(PATIENCE_S) == 0, log.read_text()
    assert not list(installed.folder.iterdir())


def test_uv_runs_it_without_an_installation(wheels: Path, tmp_path: Path) -> None:
    """As pipx does, uvx makes an environment of the command's own."""
    (tmp_path / "empty").mkdir()
    uvx = [UV, "tool", "run", "-q", "--python", sys.executable, "--find-links", str(wheels), "--from"]
    one = Installed([*uvx, "icestream[standalone]", "icestream"], tmp_path / "empty")
    one.environ["UV_TOOL_DIR"] = str(tmp_path / "tools")
    # uv itself is in the checkout's environment: here it stays visible.
    one.command = one.command[6:]
    assert "this host can be profiled" in one.run("collect", "--check")
