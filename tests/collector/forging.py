"""Programs with one build ID; a user without rights forged one of them."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534
BUILD_ID = "5eed" * 10


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that all users can read, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="icestream-forged-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def compiled(source: Path, program: Path, *options: str, owner: int = 0) -> Path:
    """Compiles a program that claims BUILD_ID."""
    subprocess.run(["gcc", source, "-o", program, f"-Wl,--build-id=0x{BUILD_ID}", "-pthread", *options], check=True)
    os.chown(program, owner, owner)
    return program


@contextmanager
def running_forged(forged: Path, path: Path, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process of NOBODY that runs the forged program at the path of another one, in a mount namespace of its own."""
    # What follows is what a user without rights can do below `unshare --user --map-root-user --mount`.
    script = f'mount --bind {forged} {path} && exec setpriv --reuid={NOBODY} --clear-groups {path} "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    try:
        assert process.stdout
        assert process.stdout.read(6) == b"ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()
