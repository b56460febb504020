"""The lock on the data folder, and who may look into that."""

import os
from pathlib import Path

import pytest

from standalone.supervisor.data_lock import lock_data


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
@pytest.mark.parametrize("mode", [None, 0o777, 0o755, 0o700])
def test_no_other_user_looks_into_it_whatever_the_umask(tmp_path: Path, umask: int, mode: int | None) -> None:
    folder = tmp_path / "data"
    before = os.umask(umask)
    try:
        if mode is not None:
            folder.mkdir()
            folder.chmod(mode)
            (folder / "spool").mkdir()
        os.close(lock_data(folder))
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o750
    assert (folder / "lock").stat().st_mode & 0o777 == 0o600


def test_a_folder_with_another_purpose_keeps_its_mode(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "of others").touch()
    for _ in range(2):
        os.close(lock_data(tmp_path))
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777
    assert f"other users can look into the data folder (chmod 750 {tmp_path})" in caplog.text
