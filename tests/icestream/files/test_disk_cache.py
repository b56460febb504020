"""Files that appear complete or not at all, and folders of them that stay within their limit."""

import os
import time
from pathlib import Path

import pytest

from icestream.files import atomic_file
from icestream.files.disk_cache import DiskCache


def test_a_file_is_replaced_at_the_end_of_the_block(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic_file.write(path, b"old")
    with atomic_file.replacing(path, durable=True) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic_file.write(path, b"old")
    with pytest.raises(TypeError):
        atomic_file.write(path, "no bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_mode_of_a_file_is_as_asked(tmp_path: Path) -> None:
    with atomic_file.replacing(tmp_path / "file", mode=0o600):
        pass
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        atomic_file.write(tmp_path / "none" / "file", b"")


def test_keys_have_files_whatever_they_contain(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache", ".data", 100)
    key = "../../etc\0" + "x" * 900
    assert cache.read(key) is None
    cache.write(key, b"value")
    assert cache.read(key) == b"value"
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_files_used_least_recently_make_room(tmp_path: Path) -> None:
    evicted: list[Path] = []
    cache = DiskCache(tmp_path, ".data", 30, evicted.append)
    for age, key in enumerate("cba"):
        cache.write(key, bytes(10))
        os.utime(cache.path(key), (1000 - age, 1000 - age))
    assert cache.use("a")
    cache.write("d", bytes(10))
    assert evicted == [cache.path("b")]
    assert [cache.use(key) is not None for key in "abcd"] == [True, False, True, True]
    cache.write("large", bytes(100))
    assert [path.name for path in tmp_path.iterdir()] == [cache.path("large").name]


def test_other_files_stay_but_old_unfinished_ones_go(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(bytes(1000))
    for name, age_s in ((".old.part", 7200), (".new.part", 10)):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    DiskCache(tmp_path, ".data", 5).write("a", b"value")
    assert {path.name for path in tmp_path.iterdir() if path.suffix != ".data"} == {"notes.txt", ".new.part"}
