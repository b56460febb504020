"""Names of locations whose symbol file comes from a slow symbol store are announced once, when it has come."""

import time
from pathlib import Path

import pytest

from icestream.messages.stacks import decode_stacks
from icestream.symbols import symcache
from icestream.symbols.symcache import SymCaches
from icestream.v1.symbols_pb2 import SymbolFile
from streams.operators.symbolize import Symbolizer
from streams.partition.process import Operators, Processor
from streams.symbols import late_names
from streams.symbols.late_names import LATE_BYTES, LOOK_S, PATIENCE_S, LateNames
from tests.data.handwritten import START, Raw, Sample, raw_id
from tests.slow_store import SlowStore
from tests.streams.operators.test_symbolize import MAPPINGS
from tests.streams.outputs import stacks
from tests.waiting import wait_until


def come(late: LateNames, now_s: float) -> list[bytes]:
    return [message for messages in late.come(now_s).values() for message in messages]


def test_names_that_come_late_are_announced_once(
    symbols: tuple[SymbolFile, int], stored: SymbolFile, store: SlowStore, tmp_path: Path
) -> None:
    address = symbols[1]
    caches = SymCaches(tmp_path, patience_s=0.01)
    assert caches.add(stored)
    late = LateNames(caches)
    processor = Processor(Operators(symbolize=Symbolizer(caches, late=late.wait).names))
    locations = [(1, address), (0, 5), (2, 8), (1, 1)]
    raw = Raw([Sample(1)], [[0, 1, 2, 3]], locations, mappings=MAPPINGS)
    outputs = processor.raw(raw.bytes(), raw_id())
    assert outputs.samples
    nodes, before = stacks(outputs.stacks)
    assert len(nodes) == 4
    assert sorted(before.values()) == [(), (), (), ("f",)]
    now_s = time.monotonic()
    assert come(late, now_s) == []

    store.answers.set()
    wait_until(lambda: caches.get("gnu:aa"))
    [message] = come(late, now_s + LOOK_S)
    columns = decode_stacks(message)
    assert not columns.node_id.size
    assert columns.source.topic == ""
    assert columns.seen_unix_nano == START
    assert columns.location_address.tolist() == [address]
    assert columns.location_version.tolist() == [7]
    [(location, functions)] = stacks([message])[1].items()
    assert (before[location], functions) == ((), ("work",))
    assert come(late, now_s + 2 * LOOK_S) == []
    # The same stack on the next day has its names with it.
    _, after = stacks(processor.raw(Raw([Sample(1)], [[0]], locations[:1], mappings=MAPPINGS, sequence=2,
                                        start=START + 10**9 * 86400).bytes(), raw_id(2)).stacks)  # fmt: skip
    assert after == {location: ("work",)}


def test_locations_that_are_known_by_older_names_keep_them_until_better_ones_come(
    symbols: tuple[SymbolFile, int], stored: SymbolFile, store: SlowStore, tmp_path: Path
) -> None:
    older, address = symbols
    stored.version = 9
    caches = SymCaches(tmp_path, patience_s=0.01)
    late = LateNames(caches)
    processor = Processor(Operators(symbolize=Symbolizer(caches, late=late.wait).names))

    def announced(sequence: int) -> list[tuple[str, ...]]:
        raw = Raw([Sample(1)], [[0]], [(1, address)], mappings=MAPPINGS, sequence=sequence,
                  start=START + sequence * 10**9 * 86400)  # fmt: skip
        return list(stacks(processor.raw(raw.bytes(), raw_id(sequence)).stacks)[1].values())

    assert caches.add(older)
    assert announced(1) == [("work",)]
    assert caches.add(stored)
    assert announced(2) == [("work",)]
    store.answers.set()
    wait_until(lambda: caches.get("gnu:aa"))
    [message] = come(late, time.monotonic())
    assert decode_stacks(message).location_version.tolist() == [9]


def test_a_file_that_never_comes_is_not_waited_for_for_ever_nor_one_that_is_gone(
    symbols: tuple[SymbolFile, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(symcache, "RETRY_S", 0.0)
    caches, late = SymCaches(tmp_path, patience_s=0.01), LateNames(SymCaches(tmp_path / "other"))
    late.wait(MAPPINGS[1], 1, 2, START)
    assert come(late, time.monotonic()) == []
    assert not len(late._waiting)
    file = SymbolFile()
    file.CopyFrom(symbols[0])
    file.uri = str(tmp_path / "nowhere")
    assert caches.add(file)
    late = LateNames(caches)
    late.wait(MAPPINGS[1], 1, 2, START)
    assert come(late, time.monotonic()) == []
    assert len(late._waiting)
    assert come(late, time.monotonic() + PATIENCE_S + 1) == []
    assert not len(late._waiting)


def test_what_waits_is_bounded_and_named_in_portions(
    symbols: tuple[SymbolFile, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_names, "PAGE", 10)
    caches = SymCaches(tmp_path)
    late = LateNames(caches)
    for number in range(LATE_BYTES // 300):
        late.wait(MAPPINGS[1], number, 2, START)
    assert late._waiting.bytes <= LATE_BYTES
    late = LateNames(caches)
    for number in range(25):
        late.wait(MAPPINGS[1], number, symbols[1], START)
    assert caches.add(symbols[0])
    portions = [come(late, 10.0) for _ in range(4)]
    assert [len(stacks(portion)[1]) for portion in portions] == [10, 10, 5, 0]
