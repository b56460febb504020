"""File systems that do not answer cost a thread, and not the profile of the host."""

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.activity.context_finder import ContextFinder
from collector.processes import mapped_files, patience
from collector.processes.mapped_files import FileCache, MappedFile, MapsEntry
from collector.processes.mapped_ranges import MappedRange
from collector.processes.patience import Patience, mount_of
from collector.runtimes.python.runtime import PythonRuntimes
from collector.unwind.tables.cache import TableCache
from icestream.v1.common_pb2 import Mapping
from tests.collector.slow_disk import SlowFile, slow_file
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

ME = os.getpid()
QUICK_S = 0.2


class Hanging:
    """Work that waits in the kernel until it is let go, as what reads a disk does."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self.discarded: list[str] = []

    def __del__(self) -> None:
        os.close(self._reader)

    def work(self) -> str:
        assert os.read(self._reader, 1) == b""
        return "late"

    def let_go(self) -> None:
        os.close(self._writer)


@pytest.fixture
def waiting() -> Iterator[Patience]:
    made = Patience(QUICK_S)
    yield made
    made.close()


def run(waiting: Patience, path: str = "/somewhere/file") -> str:
    return waiting.run(ME, path, lambda: f"read {path}", lambda late: None)


def hang(waiting: Patience, monkeypatch: pytest.MonkeyPatch) -> Hanging:
    """Every file below /nfs is of one mount."""
    monkeypatch.setattr(patience, "mount_of", lambda pid, path: "/nfs" if path.startswith("/nfs") else "/")
    hanging = Hanging()
    with pytest.raises(TimeoutError, match="/nfs/a: its file system does not answer"):
        waiting.run(ME, "/nfs/a", hanging.work, hanging.discarded.append)
    return hanging


def test_what_is_done_and_its_errors_come_back(waiting: Patience) -> None:
    assert run(waiting) == "read /somewhere/file"

    def fail() -> str:
        raise FileNotFoundError("gone")

    with pytest.raises(FileNotFoundError, match="gone"):
        waiting.run(ME, "/somewhere/file", fail, lambda late: None)
    assert run(waiting) == "read /somewhere/file"


def test_a_mount_that_hangs_is_left_alone_until_it_answers_and_others_are_read(
    waiting: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = hang(waiting, monkeypatch)
    threads = threading.active_count()
    for number in range(100):
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            run(waiting, f"/nfs/{number}")
        assert time.monotonic() - begun < QUICK_S
        assert run(waiting, f"/usr/{number}") == f"read /usr/{number}"
    assert threading.active_count() <= threads + 1  # the one that reads the others
    assert hanging.discarded == []
    hanging.let_go()
    wait_until(lambda: hanging.discarded == ["late"])
    wait_until(lambda: not waiting._hanging)
    assert run(waiting, "/nfs/b") == "read /nfs/b"


def test_a_file_that_takes_much_cpu_time_is_left_alone_and_its_mount_is_not(
    waiting: Patience, caplog: pytest.LogCaptureFixture
) -> None:
    enough, discarded = threading.Event(), list[str]()

    def work() -> str:
        while not enough.is_set():
            assert time.thread_time() < PATIENCE_S
        return "late"

    with pytest.raises(TimeoutError, match="/somewhere/file: it takes too much CPU time"):
        waiting.run(ME, "/somewhere/file", work, discarded.append)
    assert run(waiting, "/somewhere/other") == "read /somewhere/other"
    enough.set()
    wait_until(lambda: discarded == ["late"])
    with pytest.raises(TimeoutError, match="it took too much CPU time"):
        run(waiting)
    assert "does not answer" not in caplog.text


def test_a_user_whose_files_take_much_cpu_time_does_not_hold_up_the_others(
    waiting: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "effective_user_of", {2: 1000, 3: 1001}.get)
    monkeypatch.setattr(Patience, "heavy_s", 0.0)
    waiting._give_up_s = PATIENCE_S
    for number in range(patience.MOST_HANGS):
        path = f"/home/{number}"
        assert waiting.run(2, path, lambda: "read", lambda late: None) == "read"
    with pytest.raises(TimeoutError, match="of user 1000 took too long"):
        waiting.run(2, "/home/more", lambda: "read", lambda late: None)
    assert waiting.run(3, "/home/more", lambda: "read", lambda late: None) == "read"


def test_a_mount_that_answers_each_read_slowly_is_left_alone(waiting: Patience) -> None:
    enough, discarded = threading.Event(), list[str]()

    def work() -> str:
        while not enough.wait(0):
            time.sleep(QUICK_S / 20)
        return "late"

    with pytest.raises(TimeoutError, match="its file system does not answer"):
        waiting.run(ME, "/somewhere/file", work, discarded.append)
    enough.set()
    wait_until(lambda: discarded == ["late"])


def test_nothing_is_to_blame_where_the_host_is_busy(waiting: Patience) -> None:
    held = threading.Event()  # as the lock of Python's interpreter
    later = threading.Timer(5 * QUICK_S, held.set)
    later.start()
    assert waiting.run(ME, "/somewhere/file", lambda: held.wait(PATIENCE_S), lambda late: None)
    assert not waiting._hanging
    later.join()


def test_no_more_threads_wait_than_a_bound(waiting: Patience, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "MOST_HANGING", 2)
    first, second = hang(waiting, monkeypatch), Hanging()
    with pytest.raises(TimeoutError):
        waiting.run(ME, "/usr/a", second.work, second.discarded.append)
    with pytest.raises(TimeoutError):
        run(waiting, "/usr/b")
    for hanging in (first, second):
        hanging.let_go()
    wait_until(lambda: not waiting._hanging)
    assert run(waiting, "/usr/b") == "read /usr/b"


def test_mounts_are_known_by_the_longest_path() -> None:
    assert mount_of(ME, "/proc/self/status").startswith("/proc (")
    assert mount_of(2**22 + 1, "/proc/self/status").startswith("/proc (")  # a process that has ended
    assert mount_of(ME, "/").startswith("/ (")
    assert mount_of(ME, "no path") == "no path"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SlowFile]:
    with slow_file(tmp_path / "program", Path(os.path.realpath("/bin/true")).read_bytes()) as file:
        yield file


@pytest.fixture
def unclosed(tmp_path: Path) -> Iterator[SlowFile]:
    with slow_file(tmp_path / "program", Path(os.path.realpath("/bin/true")).read_bytes(), flushed=True) as file:
        yield file


@pytest.mark.ebpf  # needs root, as they do
def test_a_program_on_a_disk_that_does_not_answer_holds_up_no_other_file(
    disk: SlowFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = FileCache(QUICK_S)
    slow, other = (MapsEntry(ME, 0x1000, 0x2000, 0, 0, str(path)) for path in (disk.path, tmp_path / "other"))
    shutil.copy("/bin/false", other.path)
    disk.slow()
    with pytest.raises(TimeoutError):
        files.identify(slow)
    disk.wait_for_reader()
    files._patience._give_up_s = PATIENCE_S
    assert files.identify(other) is not None
    with pytest.raises(TimeoutError):
        files.identify(slow)
    disk.pass_on()
    wait_until(lambda: "answers again" in caplog.text)
    identity = files.identify(slow)
    assert identity is not None
    descriptor = files.open(identity.key)
    assert descriptor is not None
    assert os.pread(descriptor, 4, 0) == b"\x7fELF"
    os.close(descriptor)
    files.close()


@pytest.mark.ebpf
def test_an_answer_for_which_nobody_waits_any_more_changes_nothing_that_other_threads_use(
    disk: SlowFile, caplog: pytest.LogCaptureFixture
) -> None:
    files = FileCache(QUICK_S)
    disk.slow()
    with pytest.raises(TimeoutError):
        files.identify(MapsEntry(ME, 0x1000, 0x2000, 0, 0, str(disk.path)))
    disk.wait_for_reader()
    disk.pass_on()
    wait_until(lambda: "answers again" in caplog.text)
    assert not files._known
    files.close()


@pytest.mark.ebpf
def test_a_disk_that_stops_answering_later_holds_up_no_reader_of_the_program(
    disk: SlowFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_files, "_LONGER", 1)
    files = FileCache(PATIENCE_S / 100)
    shutil.copy("/bin/false", tmp_path / "other")
    keys = []
    for path in (tmp_path / "other", disk.path):
        entry = MapsEntry(ME, 0x1000, 0x2000, 0, 0, str(path))
        identity = files.identify(entry)
        assert identity
        keys.append(identity.key)
    other, slow = keys
    ranges = [MappedRange(4096, 8192, 0, MappedFile(Mapping.FILE, slow, slow), slow, False, entry)]
    disk.slow()
    runtimes = PythonRuntimes(files.open, files.patiently)
    finder = ContextFinder(files.open, files.patiently)
    tables = TableCache(None)
    begun = time.monotonic()
    assert runtimes.find(ranges) is None
    disk.wait_for_reader()
    with pytest.raises(TimeoutError):
        files.patiently(slow, lambda: tables.get_small(slow, lambda: files.open(slow)), longer=True)
    assert finder.find(ME, ranges) is None
    files._held.close()
    assert files.open(slow) is None
    assert time.monotonic() - begun < PATIENCE_S / 2
    assert files.patiently(other, lambda: tables.get_small(other, lambda: files.open(other)), longer=True)
    disk.pass_on()
    wait_until(lambda: not files._patience._hanging)
    files.close()


@pytest.mark.ebpf
def test_a_program_that_cannot_be_closed_holds_up_nobody(unclosed: SlowFile, tmp_path: Path) -> None:
    """Its file system answers everything but that."""
    files, disk = FileCache(QUICK_S), unclosed
    entry = MapsEntry(ME, 0x1000, 0x2000, 0, 0, str(disk.path))
    identity = files.identify(entry)
    assert identity is not None
    held = files.hold(identity.key)
    assert held is not None
    disk.stuck()
    threading.Thread(target=files.close, daemon=True).start()  # as the end of the collector
    wait_until(lambda: not len(files._held))
    os.close(held)
    with pytest.raises(TimeoutError):
        files.identify(entry)
    disk.wait_for_reader()
    shutil.copy("/bin/false", tmp_path / "other")
    files._patience._give_up_s = PATIENCE_S
    assert files.identify(entry._replace(path=str(tmp_path / "other"))) is not None
    disk.pass_on()
    wait_until(lambda: not files._patience._hanging)
    files.close()


def test_a_user_whose_mounts_hang_again_and_again_does_not_hold_up_the_others(
    waiting: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "mount_of", lambda pid, path: path)
    monkeypatch.setattr(patience, "effective_user_of", {ME: 0, 2: 1000, 3: 1001}.get)
    begun, asked = time.monotonic(), []
    for number in range(20):
        hanging = Hanging()
        path = f"/fuse/{number}"
        with pytest.raises(TimeoutError):
            waiting.run(2, path, lambda hanging=hanging: asked.append(1) or hanging.work(), hanging.discarded.append)
        hanging.let_go()
        wait_until(lambda: not waiting._hanging)
    assert len(asked) == patience.MOST_HANGS
    assert waiting.run(3, "/usr/a", lambda: "read", lambda late: None) == "read"
    later = begun + patience.REFUSED_S + PATIENCE_S
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert waiting.run(2, "/home/a", lambda: "read", lambda late: None) == "read"


def test_a_user_whose_mounts_hang_for_ever_does_not_hold_up_the_others_ever(
    waiting: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "mount_of", lambda pid, path: path)
    monkeypatch.setattr(patience, "effective_user_of", {2: 1000, 3: 1001}.get)
    monkeypatch.setattr(patience, "REFUSED_S", 0.0)  # each is long after the one before
    hanging = Hanging()
    for number in range(2 * patience.MOST_HANGING):
        with pytest.raises(TimeoutError):
            waiting.run(2, f"/fuse/{number}", hanging.work, hanging.discarded.append)
    assert waiting.run(3, "/usr/a", lambda: "read", lambda late: None) == "read"
    hanging.let_go()
    wait_until(lambda: not waiting._hanging)
    assert waiting.run(2, "/home/a", lambda: "read", lambda late: None) == "read"


def test_a_descriptor_that_comes_as_patience_ends_is_not_lost(
    waiting: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    class JustEnded(patience.Future[str]):
        def result(self, timeout: float | None = None) -> str:
            done = super().result()
            if timeout is not None:
                raise TimeoutError
            return done

    monkeypatch.setattr(patience, "Future", JustEnded)
    assert run(waiting) == "read /somewhere/file"
