"""Names of the code of live JVMs beside what their own tools say, and memory that is no JVM's."""

import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.runtimes.frames import Kind, ManagedFrame
from collector.runtimes.hotspot import names, processes, vm_structs
from collector.runtimes.hotspot.blobs import Scopes, read_blobs
from collector.runtimes.hotspot.code import HotspotCode, Jvm
from collector.runtimes.hotspot.heaps import CodeHeaps, JvmNotReady, find_heaps
from collector.runtimes.hotspot.layout import layout
from collector.runtimes.hotspot.unsigned5 import read_lines, read_number
from collector.runtimes.hotspot.vm_structs import StructuresError, VmStructs
from tests.collector.runtimes.hotspot.jvms import EACH, NEEDS_JAVA, SOURCES, homes, started

pytestmark = [pytest.mark.slow, NEEDS_JAVA]
COMPILED = re.compile(r"^ *(\d+) +\d+ +\d+ +(\S+)\(.*\[(0x[0-9a-f]+),", re.MULTILINE)


def find(pid: int) -> tuple[Jvm, CodeHeaps]:
    mapped = next(line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "libjvm.so" in line)
    with open(mapped[5], "rb") as library:
        exported = vm_structs.find_tables(library.fileno())
    assert exported is not None
    bias = -int(mapped[0].split("-")[0], 16) & (1 << 64) - 1
    return processes._find(pid, processes._Library("", bias), exported)


def compiled(home: Path, pid: int) -> dict[int, tuple[int, str]]:
    """Blob -> its number and method, as the JVM lists them."""
    tool = home / "bin/jcmd"
    listed = subprocess.run(
        [tool if tool.exists() else "jcmd", str(pid), "Compiler.codelist"], capture_output=True, text=True, check=True
    ).stdout
    return {int(at, 16): (int(number), method) for number, method, at in COMPILED.findall(listed)}


class Live(NamedTuple):
    """A JVM that runs `Known`, and how it lists its code."""

    pid: int
    jvm: Jvm
    heaps: CodeHeaps
    listed: dict[int, tuple[int, str]]


@pytest.fixture(scope="module", params=homes(), ids=lambda home: home.name)
def live(request: pytest.FixtureRequest) -> Iterator[Live]:
    with started(request.param) as process:
        time.sleep(1)
        listed = compiled(request.param, process.pid)
        yield Live(process.pid, *find(process.pid), listed)


def frames_of(live: Live, position: int = 0) -> list[ManagedFrame]:
    return [ManagedFrame(live.pid, Kind.HOTSPOT_CODE, at, number, position) for at, (number, _) in live.listed.items()]


def test_compiled_methods_have_the_names_that_the_jvm_lists(live: Live) -> None:
    found = HotspotCode().functions(frames_of(live), {live.pid: live.jvm}.get)
    pairs = [
        (names_of[-1].function, names.method_name(*method.replace(".", "/").rsplit("/", 1)))
        for names_of, (_, method) in zip(found, live.listed.values(), strict=True)
        if names_of  # it may have been freed since
    ]
    assert len(pairs) > len(live.listed) * 0.8 > 20
    assert [pair for pair in pairs if pair[0] != pair[1]] == []
    assert {"Known.burn", "Known.recurse"} <= {function for function, _ in pairs}
    assert all(any(heap.low <= at < heap.high for heap in live.heaps.heaps) for at in live.listed)


def test_every_place_of_a_compiled_method_has_lines_of_its_source(live: Live) -> None:
    source = (SOURCES / "Known.java").read_text().splitlines()
    own = [at for at, (_, method) in live.listed.items() if method.startswith("Known.")]
    frames = [
        ManagedFrame(live.pid, Kind.HOTSPOT_CODE, at, blob.check, place - 1)
        for at, blob in read_blobs(live.jvm.memory, live.jvm.layout, own).items()
        if blob.scopes
        for place, scope in blob.scopes._places()[["code", "scope"]].tolist()
        if scope
    ]
    chains = HotspotCode().functions(frames, {live.pid: live.jvm}.get)
    assert len(frames) > 10
    for frame, chain in zip(frames, chains, strict=True):
        assert not chain or chain[-1].function == live.listed[frame.object][1]
        for function, _, line in (name for name in chain if name.file == "Known.java" and "$" not in name.function):
            first = next(i for i, text in enumerate(source, 1) if f" {function.split('.')[1]}(" in text)
            assert first <= line <= first + 12, (function, line)
    assert any(len(chain) > 1 for chain in chains)


def test_memory_that_was_overwritten_gives_no_errors_and_no_growth(live: Live) -> None:
    """As a hostile process would: objects of a JVM, with bytes changed anywhere."""
    listed = list(live.listed)[:40]

    @settings(max_examples=20, deadline=None)
    @given(st.randoms(use_true_random=False))
    def changed(random: Random) -> None:
        memory = partial(_changed, live.jvm.memory, random)
        code = HotspotCode()
        code.read(live.pid, Jvm(memory, live.jvm.layout, 0), listed, [at + 8 for at in listed[:4]])
        named = code.functions(
            [frame._replace(position=frame.object & 1023) for frame in frames_of(live)], lambda pid: None
        )
        assert all(len(each) <= 128 for each in named)
        with suppress(StructuresError, JvmNotReady):
            find_heaps(memory, live.jvm.layout.heaps)

    changed()


@EACH
def test_tables_that_are_none_are_refused_with_a_reason(home: Path) -> None:
    with (home / "lib/server/libjvm.so").open("rb") as library:
        exported = vm_structs.find_tables(library.fileno())
    assert exported
    with pytest.raises(StructuresError, match="cannot be read"):
        vm_structs.read_tables(lambda areas: [None] * len(areas), exported)
    with pytest.raises(StructuresError, match="another form"):
        vm_structs.read_tables(lambda areas: [b"\xff" * size for _, size in areas], exported)
    with pytest.raises(StructuresError, match="JDK 8: expected 11 or newer"):
        layout(8, VmStructs({}, {}, {}))
    with pytest.raises(StructuresError, match=r"JDK 99 does not say .*CodeBlob._name"):
        layout(99, VmStructs({"HeapBlock::Header._used": 8}, {}, {"HeapBlock": 16, "nmethod": 300}))


def _changed(memory: vm_structs.Memory, random: Random, areas: Sequence[tuple[int, int]]) -> list[bytes | None]:
    result: list[bytes | None] = []
    for data in memory(areas):
        if data is None or random.random() < 0.1:
            result.append(None)
            continue
        damaged = bytearray(data)
        for _ in range(random.choice([0, 0, 1, 4])):
            if damaged:
                damaged[random.randrange(len(damaged))] = random.choice([0, 1, 127, 255])
        result.append(bytes(damaged))
    return result


@given(st.integers(0, 2**32 - 1), st.sampled_from([0, 1]), st.binary(max_size=4))
def test_numbers_are_read_as_hotspot_writes_them(number: int, excluded: int, behind: bytes) -> None:
    data = written(number, excluded)
    assert read_number(data + behind, 0, excluded) == (number, len(data))


def written(number: int, excluded: int) -> bytes:
    """UNSIGNED5::write_uint."""
    low, result = 192 - excluded, bytearray()
    while number >= low and len(result) < 4:
        number -= low
        result.append(low + number % 64 + excluded)
        number //= 64
    return bytes([*result, number + excluded])


@given(st.binary(max_size=200), st.binary(max_size=200), st.binary(max_size=64), st.integers(-5, 1 << 33))
def test_any_bytes_are_scopes_and_lines_of_bounded_size(places: bytes, scopes: bytes, metadata: bytes, at: int) -> None:
    tables = Scopes(places, scopes, metadata, 1)
    assert len(tables.at(at)) <= 128
    assert len(tables.methods()) <= len(metadata) // 8
    assert read_lines(scopes, 0).at(at) >= 0


def test_names_have_no_numbers_that_each_process_counts() -> None:
    assert names.class_name("a/Main$$Lambda$14+0x00007f0c0c000400") == "a.Main$$Lambda"
    assert names.class_name("a/Main$$Lambda/0x0000000800066840") == "a.Main$$Lambda"
    assert names.class_name("java/lang/invoke/LambdaForm$MH+0x00007f0c0c000400") == "java.lang.invoke.LambdaForm$MH"
    assert (
        names.class_name("jdk/internal/reflect/GeneratedMethodAccessor12")
        == "jdk.internal.reflect.GeneratedMethodAccessor"
    )
    assert names.class_name("com/sun/proxy/$Proxy7") == "com.sun.proxy.$Proxy"
    assert names.class_name("a/Outer$1") == "a.Outer$1"
    assert names.class_name("com/shop/facade") == "com.shop.facade"
    assert names.file_name("a/b/Outer$1", "Outer.java") == "a/b/Outer.java"
    for wrong in ("a\nb", "[I"):
        with pytest.raises(ValueError, match=re.escape(wrong)):
            names.method_name(wrong, "x")
