"""Files that users put where the collector looks."""

import ctypes
import os
import socket
from pathlib import Path

import pytest

from collector.processes.mapped_files import MapsEntry, open_entry
from collector.processes.regular_file import open_regular

_IN_OPEN, _IN_NONBLOCK = 0x20, 0o4000


class Opens:
    """Whether something opened a file (inotify(7))."""

    def __init__(self, path: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(_IN_NONBLOCK)
        assert libc.inotify_add_watch(self._fd, os.fsencode(path), _IN_OPEN) >= 0

    def any(self) -> bool:
        try:
            return bool(os.read(self._fd, 4096))
        except BlockingIOError:
            return False
        finally:
            os.close(self._fd)


def test_a_regular_file_is_opened_for_reading(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    opens = Opens(path)
    with open(open_regular(str(path)), "rb") as file:
        assert file.read() == b"content"
    assert opens.any()


@pytest.mark.parametrize("kind", ["fifo", "device", "socket", "folder", "link to a fifo"])
def test_nothing_else_is_opened_even_for_a_moment(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "trap"
    if kind == "device" and os.geteuid() != 0:
        pytest.skip("needs root")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        os.mknod(path, 0o20666, os.makedev(1, 3))
    elif kind == "socket":
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(path))
        listening.close()
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(tmp_path / "fifo")
        path.symlink_to("fifo")
    opens = Opens(path)
    with pytest.raises(FileNotFoundError):
        open_regular(str(path))
    with pytest.raises(OSError, match="trap"):
        open_entry(MapsEntry(2**22, 0, 4096, path.stat().st_dev, path.stat().st_ino, str(path)))
    assert not opens.any()


def test_a_link_is_not_followed_where_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(FileNotFoundError):
        open_regular(str(tmp_path / "link"), os.O_NOFOLLOW)
