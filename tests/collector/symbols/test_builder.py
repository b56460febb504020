"""Symbol files: real names for real files, errors in words for everything else."""

import hashlib
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from symbolic.symcache import SymCache

from collector.elf import identity
from collector.elf.reader import bytes_reader
from collector.processes.file_owner import ROOT
from collector.processes.mapped_files import VDSO, MapsEntry, vdso_bytes
from collector.symbols import builder as symbols
from collector.symbols import names_worker, symbol_responder
from collector.symbols.builder import LARGE_TIMEOUT_S, SymbolBuilder
from collector.symbols.functions import functions
from collector.symbols.name_kinds import DEBUG_INFO, STARTS, SYMBOL_TABLE
from collector.symbols.symbol_files import SymbolFiles
from collector.symbols.symcache_child import JOB_CPU_SECONDS
from icestream.symbols.symcache import SymCaches
from icestream.v1.symbols_pb2 import SymbolFile
from tests.collector.slow_disk import slow_file
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow  # most tests start processes that read files, which takes half a second each

SOURCE = "int answer(int x) { return x * 42; }\nint main(void) { return answer(1); }\n"


@pytest.fixture
def builder() -> Iterator[SymbolBuilder]:
    made = SymbolBuilder("host", "", SymbolFiles())
    yield made
    made.end_children()


def compiled(path: Path, *flags: str) -> tuple[str, int]:
    """Compiles a program; returns its build ID and the address of `answer`."""
    source = path.with_suffix(".c")
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-O0", source, "-o", path, *flags], check=True)
    lines = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines()
    address = next(int(line.split()[0], 16) for line in lines if line.endswith(" T answer"))
    with open(path, "rb") as file:
        found = identity.read_file(file.fileno()).build_id or identity.file_hash(file.fileno())
    return found, address


def unpacked(answers: list[SymbolFile]) -> SymCache:
    first = answers[0]
    assert [(a.chunk, a.chunks) for a in answers] == [(i, len(answers)) for i in range(len(answers))]
    data = zstandard.ZstdDecompressor().decompress(b"".join(a.data for a in answers))
    assert (len(data), hashlib.sha256(data).hexdigest()) == (first.size, first.sha256)
    return SymCache.from_bytes(data)


@pytest.mark.parametrize("flags", [("-no-pie",), ("-pie", "-fPIE"), ("-static",), ("-Wl,--build-id=none",)])
def test_functions_are_found_at_their_addresses_in_every_kind_of_file(
    builder: SymbolBuilder, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    build_id, address = compiled(tmp_path / "program", *flags)
    answers = list(builder.answer(build_id, str(tmp_path / "program")))
    [line] = unpacked(answers).lookup(address + 1 - answers[0].load_address)
    assert line.symbol == "answer"
    assert answers[0].version == SYMBOL_TABLE


def test_names_with_lines_are_a_better_version(builder: SymbolBuilder, tmp_path: Path) -> None:
    build_id, address = compiled(tmp_path / "program", "-g")
    answers = list(builder.answer(build_id, str(tmp_path / "program")))
    [line] = unpacked(answers).lookup(address + 1 - answers[0].load_address)
    assert (line.symbol, line.line, answers[0].version) == ("answer", 1, DEBUG_INFO)


def test_a_large_file_comes_in_chunks(builder: SymbolBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "CHUNK_BYTES", 100)
    build_id, address = compiled(tmp_path / "program", "-g")
    answers = list(builder.answer(build_id, str(tmp_path / "program")))
    assert len(answers) > 2
    assert unpacked(answers).lookup(address - answers[0].load_address)


def test_the_symbol_store_gets_the_file_under_its_hash(tmp_path: Path) -> None:
    build_id, address = compiled(tmp_path / "program")
    for store in (str(tmp_path / "store"), f"file://{tmp_path}/other"):
        builder = SymbolBuilder("host", store, SymbolFiles())
        [answer] = builder.answer(build_id, str(tmp_path / "program"))
        builder.end_children()
        path = Path(answer.uri.removeprefix("file://"))
        assert answer.uri.startswith(store)
        symcache = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
        assert hashlib.sha256(symcache).hexdigest() == answer.sha256
        assert SymCache.from_bytes(symcache).lookup(address - answer.load_address)
        assert len(list(path.parent.iterdir())) == 1


def test_a_stripped_file_says_that_it_has_starts_only_so_that_another_host_is_asked(
    builder: SymbolBuilder, tmp_path: Path
) -> None:
    build_id, address = compiled(tmp_path / "program")
    subprocess.run(["strip", tmp_path / "program"], check=True)
    answers = list(builder.answer(build_id, str(tmp_path / "program")))
    assert {answer.version for answer in answers} == {STARTS}
    caches = SymCaches(tmp_path / "cache")
    assert [caches.add(answer) for answer in answers] == [True]
    opened = caches.get(build_id)
    assert opened is not None
    [line] = opened.lookup(address + 1, "/usr/bin/program")
    assert line.function == f"program+{address:#x}"


def test_a_file_without_names_and_starts_is_an_error(builder: SymbolBuilder, tmp_path: Path) -> None:
    build_id, _ = compiled(tmp_path / "program")
    subprocess.run(["objcopy", "--strip-all", "--remove-section", ".eh_frame", tmp_path / "program"], check=True)
    [answer] = builder.answer(build_id, str(tmp_path / "program"))
    assert "stripped" in answer.error


def test_a_file_is_found_where_a_process_has_it(tmp_path: Path) -> None:
    build_id, address = compiled(tmp_path / "program")
    files = SymbolFiles()
    status = (tmp_path / "program").stat()
    files.add(build_id, ROOT, MapsEntry(2**22 + 1, 0, 1, status.st_dev, status.st_ino, str(tmp_path / "program")))
    builder = SymbolBuilder("host", "", files)
    answers = list(builder.answer(build_id, "/gone"))
    assert unpacked(answers).lookup(address - answers[0].load_address)
    builder.end_children()


@pytest.mark.parametrize("path", ["/etc/passwd", "/gone", "", "/dev/zero", "/proc/kcore", "../../x", "/tmp/\0x", "/"])
def test_nothing_is_taken_from_a_file_with_another_build_id(builder: SymbolBuilder, path: str) -> None:
    for build_id in ("gnu:0123", "sha256:00", "go:x", "", "gnu:../../../etc"):
        [answer] = builder.answer(build_id, path)
        assert answer.error == "the file is not on this host any more"
        assert (answer.version, answer.data, answer.uri) == (0, b"", "")


def test_a_damaged_file_is_an_error_and_the_next_one_is_answered(builder: SymbolBuilder, tmp_path: Path) -> None:
    build_id, _ = compiled(tmp_path / "program", "-g", "-Wl,--build-id=0xabcd")
    data = bytearray((tmp_path / "program").read_bytes())
    for at in range(0x4000, len(data) - 16, 7):
        data[at] ^= 0xFF
    (tmp_path / "damaged").write_bytes(data)
    damaged = list(builder.answer(build_id, str(tmp_path / "damaged")))
    assert damaged[0].error or damaged[0].version
    assert not next(iter(builder.answer(build_id, str(tmp_path / "program")))).error


def test_a_job_that_takes_too_long_is_an_error_and_the_next_one_is_answered(
    builder: SymbolBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_id, _ = compiled(tmp_path / "program")
    with monkeypatch.context() as patch:
        patch.setattr(builder, "_timeout_s", 0.0)
        [answer] = builder.answer(build_id, str(tmp_path / "program"))
        assert "time" in answer.error
    assert not next(iter(builder.answer(build_id, str(tmp_path / "program")))).error


@pytest.mark.ebpf  # needs root, as they do
@pytest.mark.parametrize("limit", ["MAX_STUCK", "MAX_STUCK_OF_USER"])
def test_a_file_on_a_disk_that_does_not_answer_holds_up_no_others_and_only_a_few_children_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(symbols, limit, 1)
    files = SymbolFiles()
    monkeypatch.setattr(files, "users", lambda build_id: (1000,))
    builder = SymbolBuilder("host", "", files)
    build_id, _ = compiled(tmp_path / "program")
    with slow_file(tmp_path / "slow", Path("/bin/true").read_bytes()) as disk:
        list(builder.answer(build_id, str(tmp_path / "program")))  # the children were started
        builder._timeout_s = 1.0
        disk.slow()
        assert [answer.error for answer in builder.answer("gnu:" + "00" * 20, str(disk.path))] == [symbols._TOO_MUCH]
        builder._timeout_s = PATIENCE_S
        [waits] = builder.answer(build_id, str(tmp_path / "program"))
        assert waits.error == "processes that were killed still wait for a disk"
        monkeypatch.setattr(files, "users", lambda build_id: (1001,))
        [other] = builder.answer(build_id, str(tmp_path / "program"))
        assert bool(other.error) == (limit == "MAX_STUCK")
        disk.wait_for_reader()
        disk.pass_on()
        wait_until(lambda: not next(builder.answer(build_id, str(tmp_path / "program"))).error)
        builder.end_children()


@pytest.mark.parametrize("when", ["while it waits", "before"])
def test_another_thread_interrupts_an_answer_whose_own_thread_rests(
    builder: SymbolBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    build_id, _ = compiled(tmp_path / "program")
    monkeypatch.setattr(names_worker, "COMMAND", ["-c", "import time; time.sleep(1000)"])
    found: list[SymbolFile] = []
    if when == "before":
        builder.interrupt()

    def answer() -> None:
        found.extend(builder.answer(build_id, str(tmp_path / "program")))
        builder.end_children()

    answering = threading.Thread(target=answer)
    answering.start()
    if when == "while it waits":
        wait_until(lambda: builder._child)
        builder.interrupt()
    answering.join(PATIENCE_S)
    assert [bool(each.error) for each in found] == [True]
    assert (builder._child, builder._worker) == (None, None)


def test_a_large_file_may_use_all_its_cpu_time_in_the_shipped_unit_beside_another_child() -> None:
    unit = Path(__file__).parents[3] / "deploy" / "systemd" / "icestream-collector.service"
    [quota] = re.findall(r"^CPUQuota=(\d+)%$", unit.read_text(), re.MULTILINE)
    assert JOB_CPU_SECONDS / (int(quota) / 100 / 2) < LARGE_TIMEOUT_S
    assert LARGE_TIMEOUT_S * 10**9 < symbol_responder._TOO_OLD_NS


def test_the_vdso_has_names_that_end_where_its_functions_do(builder: SymbolBuilder) -> None:
    build_id = identity.read_bytes(vdso_bytes()).build_id
    answers = list(builder.answer(build_id, VDSO))
    cache = unpacked(answers)
    ranges = functions(bytes_reader(vdso_bytes()))
    assert any("clock_gettime" in name for _, _, name in ranges)
    for start, end, name in ranges:
        assert [line.symbol for line in cache.lookup(end - 1 - answers[0].load_address)] == [name]
        if not any(start <= end < stop for start, stop, _ in ranges):
            assert cache.lookup(end - answers[0].load_address) == []
