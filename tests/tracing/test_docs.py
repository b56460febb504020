"""What docs/tracing.md and the README say can be typed, can be typed."""

import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from icestream import tracing
from tests.tracing.traced import Listener

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "tracing.md").read_text()
README = (ROOT / "README.md").read_text()


def _blocks(language: str, text: str = TEXT) -> list[str]:
    return [
        textwrap.dedent(block)
        for block in re.findall(rf"^ *```{language}\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    ]


COMMANDS = [line[2:] for block in _blocks("console") for line in block.splitlines() if line.startswith("$ ")]


def _run(command: list[str], listener: Listener) -> None:
    environ = os.environ | {"ICESTREAM_ACTIVITY_SOCKET": listener.path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    heard = listener.take()
    assert sum(row[5] for row in heard.rows) > 0
    assert heard.spans


@pytest.mark.parametrize("code", _blocks("python") + _blocks("python", README))
def test_a_snippet_runs_and_sends_activity(code: str, listener: Listener) -> None:
    _run([sys.executable, "-c", code], listener)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs_and_sends_activity(command: str, listener: Listener) -> None:
    program, *arguments = shlex.split(command)
    assert program == "python"
    _run([sys.executable, *arguments], listener)


def test_everything_public_is_documented() -> None:
    for name in (*tracing.__all__, *tracing.Status._fields):
        assert name == "Status" or name in TEXT
    assert len(COMMANDS) >= 3
