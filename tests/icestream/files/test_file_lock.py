"""Locks on files."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from icestream.files import file_lock

_HOLD = """
import sys
from pathlib import Path
from icestream.files import file_lock
file_lock.lock(Path(sys.argv[1]))
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[Path, "subprocess.Popen[bytes]"]]:
    """A file, and the process that holds its lock until its input ends."""
    path = tmp_path / "lock"
    command = [sys.executable, "-c", _HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield path, holder


def test_who_holds_a_lock_is_named_and_its_end_frees_it(held: tuple[Path, "subprocess.Popen[bytes]"]) -> None:
    path, holder = held
    assert file_lock.is_locked(path)
    for patience_s in (0.0, 0.2):
        with pytest.raises(file_lock.Locked, match=f"{path} is locked by process {holder.pid}$"):
            file_lock.lock(path, patience_s)
    holder.kill()
    holder.wait()
    assert not file_lock.is_locked(path)
    os.close(file_lock.lock(path))


def test_what_waits_gets_the_lock_once_it_is_free(held: tuple[Path, "subprocess.Popen[bytes]"]) -> None:
    path, holder = held
    assert holder.stdin is not None
    holder.stdin.close()
    os.close(file_lock.lock(path, 60.0))


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="lock"):
        file_lock.lock(tmp_path / "lock")
    assert not (tmp_path / "other").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_another_user_cannot_hold_up_the_owner() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        path = Path(folder) / "lock"
        path.touch(0o644)
        before = subprocess.run(["flock", "-n", path, "true"], user=65534, check=False)
        assert before.returncode == 0  # what anybody can read, anybody can lock
        os.close(file_lock.lock(path))
        after = subprocess.run(["flock", "-n", path, "true"], user=65534, capture_output=True, check=False)
        assert b"Permission denied" in after.stderr
