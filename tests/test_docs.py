"""Commands in the docs, run.

A block that begins with "```console run" is run against an `icestream up` that has seen the shipped recording: every
line that begins with "$ " in bash, in the repository's folder, with .venv/bin on the PATH. Each must end with exit code
0 within a minute; lines without "$ " show what comes and are not compared. Where a command says 127.0.0.1:4060 or
127.0.0.1:9092 it gets the running one's API or broker, and /tmp/icestream is a fresh folder.
"""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from icestream.files.run_info import RunInfo
from standalone.demo.play import RECORDING, load_recording, play_recording
from tests.standalone.supervisor.test_up import Up
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
_ITEM = re.compile(r"^ *(?:-|\d+\.) (?:\*\*[^*]+\*\* ?)?(.*(?:\n {2,}(?!- |\d+\. )\S.*)*)", re.MULTILINE)
_BLOCK = re.compile(r"^ *```console run\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Command:
    page: str
    line: str


def commands() -> list[Command]:
    commands = []
    for page in PAGES:
        for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
            lines = [line.strip() for line in block.splitlines()]
            commands += [Command(page.name, line[2:]) for line in lines if line.startswith("$ ")]
    return commands


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunInfo]:
    """Runs an icestream, and plays the shop's recording into it."""
    data = tmp_path_factory.mktemp("docs") / "data"
    data.mkdir()
    up = Up(data, "--no-local-kafka")
    try:
        up.wait_ready()
        play_recording(up.info, load_recording(RECORDING), threading.Event())
        yield up.info
    finally:
        up.process.terminate()
        up.process.wait(PATIENCE_S)


@pytest.mark.pipeline
@pytest.mark.parametrize("command", commands(), ids=lambda command: f"{command.page}: {command.line[:60]}")
def test_commands_in_the_docs_work(command: Command, shop: RunInfo, tmp_path: Path) -> None:
    line = command.line.replace("127.0.0.1:4060", shop.addresses["api"]).replace("127.0.0.1:9092", shop.kafka)
    environ = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ICESTREAM_KAFKA": shop.kafka,
        "ICESTREAM_URL": f"http://{shop.addresses['api']}",
    }
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line.replace("/tmp/icestream", str(tmp_path))],
        cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


@pytest.mark.pipeline
def test_the_consumer_of_the_topics_prints_functions(shop: RunInfo) -> None:
    page = (ROOT / "docs/topics.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    command = [sys.executable, "-c", code.replace("+ 30", "+ 10"), shop.kafka]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert re.search(r"^ +\d+\.\d\d s  [a-z_]{3,}", done.stdout, re.MULTILINE), done.stdout


def test_there_are_commands_to_run() -> None:
    assert commands()


def test_pages_are_quick_to_read() -> None:
    """The README and lines are short (rows of tables cannot be broken), and a list item has one to three sentences."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 75
    for page in set(PAGES) - {ROOT / "docs/settings.md"}:  # generated
        text = page.read_text(encoding="utf-8")
        assert not [line for line in text.splitlines() if len(line) > 124 and not line.startswith("|")], page
        blocks = r"^ *```.*?^ *```$"
        prose = re.sub(r"`[^`]*`", "Code", re.sub(blocks, "", text, flags=re.MULTILINE | re.DOTALL))
        for item in _ITEM.findall(prose):
            assert len(re.findall(r"[.!?][)*]*(?=\s+[A-Z`*\[(]|\s*$)", item)) <= 3, f"{page.name}: {item}"
