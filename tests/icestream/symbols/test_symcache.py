import contextlib
import hashlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
import zstandard
from symbolic.debuginfo import Archive

from icestream.files.atomic_file import PART
from icestream.symbols import symcache
from icestream.symbols.demangle import demangle
from icestream.symbols.line import Line
from icestream.symbols.symbol_chunks import MAX_BYTES
from icestream.symbols.symcache import SymCacheError, SymCaches
from icestream.v1.symbols_pb2 import SymbolFile
from tests.memory import resident_bytes
from tests.slow_store import SlowStore
from tests.waiting import PATIENCE_S, wait_until

SOURCE = """
static inline __attribute__((always_inline)) int inlined(volatile int *x) {
    return *x * 3;
}
int outer(volatile int *x) {
    *x = 4;
    return inlined(x) + 1;
}
namespace shop { struct Cart { int total(volatile int *x) { return outer(x); } }; }
int main() {
    volatile int x = 0;
    return shop::Cart().total(&x);
}
"""


class Program:
    """A program that was just compiled, and its SymCache."""

    def __init__(self, folder: Path, *flags: str) -> None:
        source, self.path = folder / "program.cpp", folder / "program"
        source.write_text(SOURCE)
        subprocess.run(["g++", "-g", "-O1", "-fno-inline-functions", *flags, "-o", self.path, source], check=True)
        symcache = next(Archive.open(str(self.path)).iter_objects()).make_symcache()
        self.data = symcache.open_stream().read()
        self.symbols = {}
        for line in subprocess.check_output(["nm", self.path], text=True).splitlines():
            address, _, name = line[:16].strip(), line[17:18], line[19:]
            if address:
                self.symbols[name] = int(address, 16)
        headers = subprocess.check_output(["readelf", "-lW", self.path], text=True).splitlines()
        self.load_address = int(next(line for line in headers if " LOAD " in line).split()[2], 16)

    def file(self, **more: object) -> SymbolFile:
        """The message about it, without the SymCache itself."""
        digest = hashlib.sha256(self.data).hexdigest()
        file = SymbolFile(build_id="gnu:aa", host_id="h", version=5, size=len(self.data), sha256=digest)
        file.load_address = self.load_address
        for name, value in more.items():
            setattr(file, name, value)
        return file

    @property
    def packed(self) -> bytes:
        return zstandard.ZstdCompressor().compress(self.data)

    def chunks(self, count: int) -> list[SymbolFile]:
        packed = self.packed
        size = -(-len(packed) // count)
        return [self.file(chunk=i, chunks=count, data=packed[i * size : (i + 1) * size]) for i in range(count)]


@pytest.fixture(scope="module", params=["-pie", "-no-pie"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    return Program(tmp_path_factory.mktemp("program"), request.param)


def lines_of(caches: SymCaches, program: Program) -> list[list[Line]]:
    """The lines of every byte of `outer`."""
    symbols = caches.get("gnu:aa")
    assert symbols is not None
    start = program.symbols["_Z5outerPVi"]
    return [symbols.lookup(address, "program") for address in range(start, start + 12)]


def test_elf_addresses_get_functions_files_and_lines(program: Program, tmp_path: Path) -> None:
    store = tmp_path / "store" / "aa.symcache"
    store.parent.mkdir()
    store.write_bytes(program.packed)
    caches = SymCaches(tmp_path / "cache", str(tmp_path / "store"))
    assert caches.add(program.file(uri=str(store)))
    assert caches.version("gnu:aa") == 5
    found = lines_of(caches, program)
    first = found[0][0]
    assert (first.function, Path(first.file).name) == ("outer(int volatile*)", "program.cpp")
    assert first.line in (5, 6)  # whether the function's opening has an instruction of its own is the compiler's choice
    assert first.start_line == first.line
    inlined = next(lines for lines in found if len(lines) == 2)
    assert [(line.function, line.line) for line in inlined] == [("inlined", 3), ("outer(int volatile*)", 7)]
    assert [line.start_line for line in inlined] == [0, first.line]
    symbols = caches.get("gnu:aa")
    assert symbols is not None
    assert symbols.lookup(2**64 - 1, "program")[:0] == []
    assert symbols.lookup(0, "program") == []


@pytest.mark.parametrize("count", [1, 3])
def test_chunks_may_come_in_any_order_and_twice(program: Program, tmp_path: Path, count: int) -> None:
    caches = SymCaches(tmp_path)
    chunks = program.chunks(count)
    came = [caches.add(chunk) for chunk in [*reversed(chunks[1:]), *chunks[1:], chunks[0], *chunks]]
    assert came.count(True) == 1
    assert lines_of(caches, program)[0]


def test_what_was_received_is_still_there_after_a_restart(program: Program, tmp_path: Path) -> None:
    SymCaches(tmp_path).add(program.chunks(1)[0])
    again = SymCaches(tmp_path)
    assert again.version("gnu:aa") == 5
    assert lines_of(again, program)[0]
    assert not again.add(program.chunks(1)[0])


def test_the_newest_version_wins(program: Program, tmp_path: Path) -> None:
    caches = SymCaches(tmp_path)
    [newer] = program.chunks(1)
    newer.version = 9
    assert caches.add(newer)
    assert not caches.add(program.chunks(1)[0])
    assert caches.version("gnu:aa") == 9


def test_refusals_and_empty_messages_are_no_names(tmp_path: Path) -> None:
    caches = SymCaches(tmp_path)
    assert not caches.add(SymbolFile(build_id="gnu:aa", error="no debug information"))
    assert not caches.add(SymbolFile())
    assert caches.get("gnu:aa") is None


def test_chunks_of_files_that_never_become_complete_take_no_memory(tmp_path: Path) -> None:
    caches = SymCaches(tmp_path)
    about = SymbolFile(version=1, size=1 << 30, sha256="00", chunks=4000, data=bytes(900_000))
    before = resident_bytes()
    for number in range(320):  # 288 MB
        about.build_id, about.chunk = f"gnu:{number // 16}", number % 16
        assert not caches.add(SymbolFile.FromString(about.SerializeToString()))
    assert resident_bytes() - before < 60_000_000
    assert used_bytes(tmp_path) <= MAX_BYTES


def used_bytes(folder: Path) -> int:
    """The size of the open files of this process that lie in a folder, with or without a name."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(link).startswith(f"{folder}/"):
                found += link.stat().st_size
    return found


def test_lies_about_size_content_and_chunks_are_errors(program: Program, tmp_path: Path) -> None:
    caches = SymCaches(tmp_path)
    [good] = program.chunks(1)
    for change in (
        {"size": good.size - 1}, {"size": good.size + 1}, {"size": 2**63}, {"sha256": "00"}, {"data": b"not zstd"},
        {"chunk": 1}, {"chunks": 2**31, "chunk": 7}, {"build_id": ""}, {"data": good.data[:-3]},
    ):  # fmt: skip
        bad = SymbolFile()
        bad.CopyFrom(good)
        for name, value in change.items():
            setattr(bad, name, value)
        with pytest.raises(SymCacheError):
            caches.add(bad)
    assert caches.get("gnu:aa") is None
    assert caches.add(good)


def test_a_frame_that_would_unpack_to_gigabytes_is_refused(tmp_path: Path) -> None:
    bomb = zstandard.ZstdCompressor().compress(b"\x00" * 50_000_000)
    file = SymbolFile(build_id="b", version=1, size=100, sha256="00", chunks=1, data=bomb)
    with pytest.raises(SymCacheError, match="more than"):
        SymCaches(tmp_path).add(file)


def test_bytes_that_are_no_symcache_name_nothing(tmp_path: Path) -> None:
    data = b"SYMC" + b"\xff" * 4000
    packed = zstandard.ZstdCompressor().compress(data)
    caches = SymCaches(tmp_path)
    caches.add(
        SymbolFile(
            build_id="b", version=1, size=len(data), sha256=hashlib.sha256(data).hexdigest(), chunks=1, data=packed
        )
    )
    assert caches.get("b") is None


def test_build_ids_cannot_leave_the_folder(program: Program, tmp_path: Path) -> None:
    caches = SymCaches(tmp_path / "cache")
    [file] = program.chunks(1)
    file.build_id = "../../" * 5 + "x\x00" + "y" * 900
    assert caches.add(file)
    assert caches.get(file.build_id) is not None
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_places_outside_of_the_store_are_refused(program: Program, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(program.packed)
    caches = SymCaches(tmp_path / "cache", str(tmp_path / "store"))
    for uri in (str(secret), f"file://{secret}", f"{tmp_path}/store/../secret"):
        file = program.file(uri=uri)
        file.build_id = uri
        caches.add(file)
        assert caches.get(uri) is None


def test_a_file_that_is_missing_is_no_error_for_who_asks(program: Program, tmp_path: Path) -> None:
    caches = SymCaches(tmp_path / "cache")
    caches.add(program.file(uri=str(tmp_path / "nowhere")))
    assert caches.get("gnu:aa") is None


@pytest.mark.parametrize("uri", ["fsspec+memory://aa", "hf://buckets/a/b", "abfss://x", "hdfs://h:1/x", "foo://x"])
def test_uris_that_no_symbol_store_has_are_refused_unopened(tmp_path: Path, uri: str) -> None:
    """pyarrow would raise ImportError for some, and end the process for others (abfs://c@a/x)."""
    with pytest.raises(SymCacheError, match="schemes file, gs, s3"):
        list(symcache.fetch(uri, ""))
    caches = SymCaches(tmp_path)
    assert caches.add(SymbolFile(build_id="gnu:aa", version=1, size=1000, sha256="00", uri=uri))
    assert caches.get("gnu:aa") is None


def test_uris_are_read_through_pyarrow(program: Program, tmp_path: Path) -> None:
    store = tmp_path / "aa.symcache"
    store.write_bytes(program.packed)
    caches = SymCaches(tmp_path / "cache", f"file://{tmp_path}")
    caches.add(program.file(uri=f"file://{store}"))
    assert lines_of(caches, program)[0]


def test_a_slow_symbol_store_holds_up_nobody_for_long_and_its_file_is_there_later(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(symcache, "RETRY_S", 0.0)
    with SlowStore(program.packed) as store:
        caches = SymCaches(tmp_path, patience_s=0.1)
        for build_id in ("gnu:aa", "gnu:bb"):
            file = program.file(uri=store.uri)
            file.build_id = build_id
            assert caches.add(file)
        began = time.monotonic()
        assert [caches.get(build_id) for build_id in ("gnu:aa", "gnu:bb", "gnu:aa")] == [None, None, None]
        assert time.monotonic() - began < 60  # pyarrow gives up after 100 s
        store.answers.set()
        wait_until(lambda: caches.get("gnu:aa"))
        assert lines_of(caches, program)[0]
        wait_until(lambda: caches.get("gnu:bb"))
        store.shutdown()


def test_a_slow_symbol_store_is_not_waited_for_again_and_again(program: Program, tmp_path: Path) -> None:
    """Each file is there as soon as it has come."""
    patience_s = 0.5
    with SlowStore(program.packed) as store:
        caches = SymCaches(tmp_path, patience_s=patience_s)
        waited_s = 0.0
        for number in range(4):
            file = program.file(uri=store.uri)
            file.build_id = f"gnu:{number}"
            assert caches.add(file)
            store.answers.clear()
            began = time.monotonic()
            assert caches.get(file.build_id) is None
            waited_s += time.monotonic() - began
            store.answers.set()
            assert version_of_names(caches, file.build_id) == 5
        assert waited_s < 3 * patience_s
        store.shutdown()


def test_a_file_that_a_near_symbol_store_has_is_there_at_once(program: Program, tmp_path: Path) -> None:
    (tmp_path / "aa.symcache").write_bytes(program.packed)
    caches = SymCaches(tmp_path / "cache", str(tmp_path), patience_s=PATIENCE_S)
    assert caches.add(program.file(uri=str(tmp_path / "aa.symcache")))
    assert lines_of(caches, program)[0]


@pytest.mark.slow
def test_files_that_come_from_a_slow_symbol_store_are_bounded(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(symcache, "MAX_COMING", 2)
    threads = threading.active_count()
    with SlowStore(program.packed) as store:
        caches = SymCaches(tmp_path, patience_s=0.01)
        for number in range(20):
            file = program.file(uri=store.uri)
            file.build_id = f"gnu:{number}"
            assert caches.add(file)
            assert caches.get(file.build_id) is None
        assert len(list(tmp_path.glob(f".*{PART}"))) <= 2
        store.answers.set()
        for number in range(20):
            assert version_of_names(caches, f"gnu:{number}") == 5
        store.shutdown()
    wait_until(lambda: threading.active_count() <= threads + symcache.FETCHERS)


def test_names_can_be_looked_up_while_a_file_is_unpacked(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches, go_on, begun = SymCaches(tmp_path), threading.Event(), threading.Event()
    assert caches.add(program.chunks(1)[0])
    unzip = symcache._unzip

    def slow(compressed: IO[bytes], build_id: str) -> Iterator[bytes]:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        yield from unzip(compressed, build_id)

    monkeypatch.setattr(symcache, "_unzip", slow)
    [large] = program.chunks(1)
    large.build_id = "gnu:large"
    adding = threading.Thread(target=caches.add, args=[large])
    adding.start()
    assert begun.wait(PATIENCE_S)
    looking = threading.Thread(target=caches.get, args=["gnu:aa"], daemon=True)
    looking.start()
    looking.join(30)
    assert not looking.is_alive()
    go_on.set()
    adding.join()
    assert caches.version("gnu:large") == 5


@pytest.mark.parametrize("another", ["thread", "process"])
def test_a_file_that_comes_late_does_not_take_the_place_of_better_names(
    program: Program, tmp_path: Path, another: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(symcache, "RETRY_S", 0.0)
    [better] = program.chunks(1)
    better.version = 9
    with SlowStore(program.packed) as store:
        late = SymCaches(tmp_path, patience_s=0.1)
        others = late if another == "thread" else SymCaches(tmp_path)
        assert late.add(program.file(uri=store.uri))
        assert late.get("gnu:aa") is None
        assert others.add(better)
        store.answers.set()
        wait_until(lambda: not list(tmp_path.glob(f".*{PART}")))
        assert [version_of_names(caches) for caches in (late, others, SymCaches(tmp_path))] == [9, 9, 9]
        store.shutdown()


def version_of_names(caches: SymCaches, build_id: str = "gnu:aa") -> int:
    """Waits for the names."""
    wait_until(lambda: caches.get(build_id))
    symbols = caches.get(build_id)
    assert symbols is not None
    assert symbols.version == caches.version(build_id)
    return symbols.version


def test_names_that_another_process_has_stored_are_not_replaced_by_older_ones(program: Program, tmp_path: Path) -> None:
    one, other = SymCaches(tmp_path), SymCaches(tmp_path)
    [older], [better] = program.chunks(1), program.chunks(1)
    better.version = 9
    assert one.add(better)
    assert other.add(older)
    assert other.version("gnu:aa") == 9
    assert version_of_names(SymCaches(tmp_path)) == 9


def test_the_folder_keeps_within_its_limit(program: Program, tmp_path: Path) -> None:
    caches = SymCaches(tmp_path, limit_bytes=3 * len(program.data))
    for i in range(6):
        [file] = program.chunks(1)
        file.build_id = f"gnu:{i}"
        assert caches.add(file)
    kept = [i for i in range(6) if caches.get(f"gnu:{i}") is not None]
    assert len(kept) == 3
    assert 5 in kept
    assert sum(path.stat().st_size for path in tmp_path.glob("*.symcache")) <= 3 * len(program.data)


@pytest.mark.parametrize(
    ("mangled", "readable"),
    [
        ("_ZN4shop4Cart5totalEPVi", "shop::Cart::total(int volatile*)"),
        ("_ZN4core3fmt9Formatter3pad17h9b2b3a0e5b4d1b31E", "core::fmt::Formatter::pad"),
        ("_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar17h930b740aa94f1d3aE",
         "<Test + 'static as foo::Bar<Test>>::bar"),
        ("main", "main"), ("_Z", "_Z"), ("_ZNnonsense", "_ZNnonsense"), ("_Z" + "1" * 9999, "_Z" + "1" * 9999),
    ],
)  # fmt: skip
def test_symbols_of_cxx_and_rust_become_readable(mangled: str, readable: str) -> None:
    assert demangle(mangled) == readable


def test_what_is_known_of_build_ids_is_bounded(tmp_path: Path) -> None:
    caches = SymCaches(tmp_path)
    size = 500_000
    count = 2 * symcache.ENTRIES_BYTES // size
    for number in range(count):
        uri = "file:///" + "x" * size
        assert caches.add(SymbolFile(build_id=f"{number}", version=1, size=1000, sha256="00", uri=uri))
    known = [number for number in range(count) if caches.version(f"{number}")]
    assert known == list(range(count - len(known), count))
    assert len(known) * size <= symcache.ENTRIES_BYTES
