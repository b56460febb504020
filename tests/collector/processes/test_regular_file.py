"""Files that users put where the collector looks."""

import ctypes
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.processes import regular_file
from collector.processes.mapped_files import MapsEntry, open_entry
from collector.processes.regular_file import open_in_root, open_regular, status_in_root
from tests.open_files import open_files

pytestmark = pytest.mark.slow

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


@pytest.fixture(params=["openat2", "ENOSYS", "EPERM", "EAGAIN"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has openat2, and those where it fails."""

    def fails(folder: int, path: bytes, how: object) -> int:
        ctypes.set_errno(getattr(errno, request.param))
        return -1

    if request.param != "openat2":
        monkeypatch.setattr(regular_file, "_openat2", fails)


@pytest.fixture
def chrooted(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The root of a process in another one, and the folder that it is."""
    if os.geteuid() != 0:
        pytest.skip("chroot needs root")
    folder = tmp_path / "inside"
    folder.mkdir()
    code = "import os, sys; os.chroot(sys.argv[1]); os.setuid(65534); print(flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", code, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"\n"
    yield f"/proc/{process.pid}/root", folder
    process.communicate()


def _read(root: str, path: str, follow: bool = True) -> bytes:
    with open(open_in_root(root, path, follow=follow), "rb") as file:
        return file.read()


def test_a_regular_file_is_opened_for_reading(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    opens = Opens(path)
    with open(open_regular(str(path)), "rb") as file:
        assert file.read() == b"content"
    assert opens.any()


@pytest.mark.parametrize("kind", ["fifo", "device", "socket", "folder", "link to a fifo", "link to a file of proc"])
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
    elif kind == "link to a fifo":
        os.mkfifo(tmp_path / "fifo")
        path.symlink_to("fifo")
    else:
        path.symlink_to(f"/proc/{os.getpid()}/limits")
    opens = Opens(path)
    with pytest.raises(FileNotFoundError):
        open_regular(str(path))
    with pytest.raises(FileNotFoundError):
        open_in_root("/", str(path))
    with pytest.raises(OSError, match="trap"):
        open_entry(MapsEntry(2**22, 0, 4096, path.stat().st_dev, path.stat().st_ino, str(path)))
    assert not opens.any()


def test_a_file_that_is_not_accepted_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    opens = Opens(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        open_in_root("/", str(tmp_path / "file"), lambda status: status.st_uid != os.geteuid())
    assert not opens.any()


@pytest.mark.usefixtures("kernel")
def test_a_link_is_not_followed_where_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "folder").symlink_to(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_in_root("/", str(tmp_path / "link"), follow=False)
    assert _read("/", str(tmp_path / "folder" / "file"), follow=False) == b"content"
    assert _read("/", str(tmp_path / "link")) == b"content"
    assert os.path.samestat(status_in_root("/", str(tmp_path / "link")), (tmp_path / "link").lstat())


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    "target", ["/secret", "secret", "../secret", "../../../../../../secret", "//folder/..//./secret", "/a link", "/up"]
)
def test_links_lead_within_the_root_of_the_process(chrooted: tuple[str, Path], tmp_path: Path, target: str) -> None:
    root, inside = chrooted
    (tmp_path / "secret").write_bytes(b"the host's")
    (inside / "secret").write_bytes(b"its own")
    (inside / "a link").symlink_to("/secret")
    (inside / "folder").mkdir()
    (inside / "up").symlink_to("/folder/../../secret")
    (inside / "link").symlink_to(target)
    before = open_files(str(tmp_path))
    assert _read(root, "/link") == b"its own"
    assert open_files(str(tmp_path)) == before


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    "path",
    [
        "/proc/self/exe", "/proc/self/root/etc/passwd", "/proc/self/cwd/pyproject.toml", "/proc/self/limits",
        "/sys/kernel/mm/transparent_hugepage/enabled", "/self/limits",
    ],
)  # fmt: skip
def test_links_and_files_of_the_kernels_own_file_systems_are_left_alone(tmp_path: Path, path: str) -> None:
    (tmp_path / "self").symlink_to("/proc/self")
    (tmp_path / "link").symlink_to(f"{tmp_path}{path}" if path.startswith("/self") else path)
    assert (tmp_path / "link").exists()
    for way in (str(tmp_path / "link"), os.readlink(tmp_path / "link")):
        with pytest.raises(OSError, match=r"no regular file|symbolic links"):
            open_in_root("/", way)


@pytest.mark.usefixtures("kernel")
def test_paths_that_lead_nowhere_are_errors(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone").symlink_to("nothing")
    (tmp_path / "file").touch()
    deep = "/x" * 2000
    before = open_files(str(tmp_path))
    for path in ("loop", "loop/x", "gone", "file/x", "", "a\0b", deep, "x" * 300):
        with pytest.raises(OSError, match=r"."):
            open_in_root(str(tmp_path), path)
    assert open_files(str(tmp_path)) == before
    with pytest.raises(FileNotFoundError):
        open_in_root("/proc/4194305/root", "/etc/passwd")
