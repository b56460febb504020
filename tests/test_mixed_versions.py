"""During an upgrade, streams read what collectors of the other version publish, and sinks what its streams publish."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.last_release import unpack_last_release

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


def test_each_version_reads_what_the_other_publishes(tmp_path: Path) -> None:
    unpack_last_release(tmp_path / "old")
    messages = {code: tmp_path / f"by-{code.name}" for code in (tmp_path / "old", ROOT)}
    for code, folder in messages.items():
        folder.mkdir()
        mixed_versions(code, "write", folder)
    for folder in messages.values():
        read = [json.loads(mixed_versions(code, "read", folder)) for code in messages]
        assert read[0] == read[1]
        assert read[0]["published"] == read[0]["streams"] == read[0]["sinks"] > 0


def mixed_versions(code: Path, *arguments: object) -> str:
    command = [sys.executable, "-m", "tests.mixed_versions", *map(str, arguments)]
    environ = os.environ | {"PYTHONPATH": str(code)}
    return subprocess.run(command, cwd=code, env=environ, check=True, stdout=subprocess.PIPE, text=True).stdout
