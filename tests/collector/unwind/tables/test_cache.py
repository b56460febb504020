"""The cache of unwinding tables: built once, kept by build ID, never trusted when damaged, and no file hurts it."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collector.unwind.tables import builder as unwind_builder
from collector.unwind.tables import cache as unwind_cache
from collector.unwind.tables import child as unwind_child
from collector.unwind.tables import table as unwind_table
from collector.unwind.tables.cache import TableCache
from collector.unwind.tables.table import UnwindTable
from tests.open_files import open_files
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow  # most tests start processes that read files, which takes half a second each

BUILD_ID = "gnu:0123456789abcdef"
CHILD = """
import sys
from collector.unwind.tables import child as unwind_child
unwind_child.NICE = 0
{}
sys.exit(unwind_child.main())
"""


@pytest.fixture(autouse=True)
def _children_that_do_not_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unwind_builder, "COMMAND", ["-c", CHILD.format("")])
    monkeypatch.setattr(unwind_table, "SMALL_CODE_BYTES", -1)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cache") / "program"
    subprocess.run(["gcc", "-O2", "-x", "c", "-", "-o", path], input=b"int main(void) { return 0; }", check=True)
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[TableCache]:
    made = TableCache(tmp_path / "tables")
    yield made
    made.close()


def opener(path: Path, opened: list[int] | None = None) -> Callable[[], int]:
    def open_file() -> int:
        descriptor = os.open(path, os.O_RDONLY)
        if opened is not None:
            opened.append(descriptor)
        return descriptor

    return open_file


def never() -> int:
    raise AssertionError("the file was opened")


def rows(table: UnwindTable | None) -> list[int]:
    assert table is not None
    return list(table.rows.tolist())


def test_a_table_is_built_once_and_then_on_disk(cache: TableCache, program: Path, tmp_path: Path) -> None:
    assert cache.cached(BUILD_ID) is None
    table = cache.get(BUILD_ID, opener(program))
    assert open_files(str(program)) == []
    with open(program, "rb") as file:
        assert rows(table) == rows(unwind_table.build(file.fileno()))
    assert rows(cache.get(BUILD_ID, never)) == rows(cache.cached(BUILD_ID)) == rows(table)
    assert rows(TableCache(tmp_path / "tables").get(BUILD_ID, never)) == rows(table)


def test_damaged_files_and_those_of_another_format_are_built_again(
    cache: TableCache, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = cache.get(BUILD_ID, opener(program))
    [path] = (tmp_path / "tables").iterdir()
    whole = path.read_bytes()
    for damaged in (b"", whole[:40], whole[:-1], whole[:-1] + b"\xff", os.urandom(200)):
        path.write_bytes(damaged)
        assert cache.cached(BUILD_ID) is None
        assert rows(cache.get(BUILD_ID, opener(program))) == rows(table)
        assert path.read_bytes() == whole
    monkeypatch.setattr(unwind_table, "FORMAT", unwind_table.FORMAT + 1)
    assert cache.cached(BUILD_ID) is None


def test_a_file_without_a_build_id_is_not_kept(cache: TableCache, program: Path, tmp_path: Path) -> None:
    assert rows(cache.get("", opener(program)))
    assert not (tmp_path / "tables").exists()


def test_the_tables_used_least_recently_make_room(program: Path, tmp_path: Path) -> None:
    with open(program, "rb") as file:
        size = len(unwind_table.to_bytes(unwind_table.build(file.fileno()), "gnu:" + "0" * 16))
    cache = TableCache(tmp_path, max_bytes=3 * size + 100)
    for i in range(3):
        cache.get(f"gnu:{i:016x}", opener(program))
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    assert cache.cached("gnu:" + "0" * 16)
    cache.get("gnu:" + "f" * 16, opener(program))
    cache.close()
    left = [name for name in ("0" * 16, f"{1:016x}", f"{2:016x}", "f" * 16) if cache.cached(f"gnu:{name}")]
    assert len(left) == 3
    assert left[0] == "0" * 16
    assert left[-1] == "f" * 16


def test_a_folder_that_cannot_be_written_costs_only_the_keeping(program: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    cache = TableCache(tmp_path / "file" / "tables")
    assert rows(cache.get(BUILD_ID, opener(program)))
    cache.close()


def test_a_file_without_a_table_is_not_tried_again_for_a_while(
    cache: TableCache, tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text"
    text.write_text("no program")
    assert cache.get(BUILD_ID, opener(text)) is None
    assert cache.get(BUILD_ID, never) is None
    now = time.monotonic()
    monkeypatch.setattr(unwind_cache.time, "monotonic", lambda: now + unwind_cache.FAILURE_S + 1)
    assert cache.get(BUILD_ID, opener(program)) is not None


def test_a_file_that_is_gone_is_no_table_and_asked_for_again(cache: TableCache, program: Path) -> None:
    assert cache.get(BUILD_ID, lambda: None) is None
    assert cache.get(BUILD_ID, opener(program)) is not None


@pytest.mark.parametrize(
    "greedy",
    [
        "unwind_child.unwind_table.build = lambda descriptor: bytearray(1 << 31)",
        "unwind_child.JOB_CPU_SECONDS = 0; unwind_child.build = lambda *job: list(iter(int, 1))",
    ],
    ids=["memory", "time"],
)
def test_a_file_that_takes_too_much_kills_the_child_at_most(
    tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch, greedy: str
) -> None:
    script = CHILD.format(greedy)
    with monkeypatch.context() as patch:
        patch.setattr(unwind_builder, "COMMAND", ["-c", script])
        cache = TableCache(tmp_path)
    assert cache.get(BUILD_ID, opener(program)) is None
    assert cache.get(BUILD_ID, never) is None
    cache.close()
    cache = TableCache(tmp_path)
    assert cache.get(BUILD_ID, opener(program)) is not None
    cache.close()


def test_where_the_child_cannot_be_confined_a_warning_says_once_why_there_are_no_tables(
    cache: TableCache, program: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    script = CHILD.format(
        "from collector.guest import confined_jobs\n"
        "def confine(): raise OSError('seccomp')\n"
        "confined_jobs.confine = confine"
    )
    monkeypatch.setattr(cache._builder.child, "command", ["-c", script])
    for build_id in ("gnu:01", "gnu:02"):
        assert cache.get(build_id, opener(program)) is None
    assert caplog.text.count("CONFIG_SECCOMP_FILTER") == 1


def test_the_child_ends_when_there_is_nothing_to_do_and_starts_again(
    tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = CHILD.format("unwind_child.IDLE_S = 0.5")
    monkeypatch.setattr(unwind_builder, "COMMAND", ["-c", script])
    cache = TableCache(tmp_path)
    assert cache.get("gnu:01", opener(program)) is not None
    child = cache._builder.child.process
    assert child is not None
    child.wait(PATIENCE_S)
    assert cache.get("gnu:02", opener(program)) is not None
    cache.close()


def test_closing_ends_a_wait_for_a_table(tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unwind_builder, "COMMAND", ["-c", "import time; time.sleep(1000)"])
    cache = TableCache(tmp_path)
    found: list[UnwindTable | None] = []
    waiting = threading.Thread(target=lambda: found.append(cache.get(BUILD_ID, opener(program))))
    waiting.start()
    while cache._builder.child.process is None:
        time.sleep(0.01)
    cache.close()
    waiting.join(PATIENCE_S)
    assert found == [None]
    assert cache.get("gnu:ffff", opener(program)) is None


def test_small_files_need_no_child(cache: TableCache, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_child = rows(cache.get("gnu:01", opener(program)))
    monkeypatch.undo()
    cache.close()  # the child is gone for good
    assert rows(cache.get("gnu:02", opener(program))) == by_child


def test_several_threads_get_one_table(cache: TableCache, program: Path) -> None:
    found: list[UnwindTable | None] = []
    opened: list[int] = []

    def get() -> None:
        found.append(cache.get(BUILD_ID, opener(program, opened)))

    threads = [threading.Thread(target=get) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 2  # once to see that it is large
    assert len({tuple(rows(table)) for table in found}) == 1


def test_a_table_of_more_bytes_than_are_kept_is_refused(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unwind_child, "MAX_TABLE_BYTES", 10)
    with open(program, "rb") as source, open(tmp_path / "target", "wb") as target:
        assert "at most 10" in unwind_child.build("key", source.fileno(), target.fileno())
    assert not (tmp_path / "target").read_bytes()
