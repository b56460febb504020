"""The wheels of a release, built from the work tree, and Python environments with them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def build_wheels(folder: Path, umask: int = -1) -> list[Path]:
    """Builds both distributions into a folder; returns the wheels, `icestream-tracing` first."""
    build = [sys.executable, str(ROOT / "deploy/release/wheels.py"), str(folder)]
    done = subprocess.run(build, capture_output=True, text=True, check=False, umask=umask)
    assert done.returncode == 0, done.stdout + done.stderr
    return [Path(line) for line in done.stdout.splitlines()]


def environment(folder: Path, *wheels: Path) -> Path:
    """Makes an environment with these wheels and nothing else; returns its Python."""
    python = folder / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", python]
    done = subprocess.run(
        [*pip, "install", "--no-deps", "--no-index", "--no-compile", *wheels],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return python
