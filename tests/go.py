"""Tests that need Go: they are skipped where it is not installed, but in CI they run and fail."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

needs_go = pytest.mark.skipif(shutil.which("go") is None and not os.environ.get("CI"), reason="Go is not installed")


def build(source: Path, program: Path) -> Path:
    """Builds the main package in the folder `source`, and returns `program`."""
    subprocess.run(["go", "build", "-o", program, "."], cwd=source, check=True, timeout=600)
    return program
