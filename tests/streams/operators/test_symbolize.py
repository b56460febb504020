from pathlib import Path

import numpy as np

from icestream.messages.raw import RawColumns, decode_raw
from icestream.messages.stack_encoder import LocationNames
from icestream.symbols.symcache import SymCaches
from icestream.v1.common_pb2 import Mapping
from icestream.v1.symbols_pb2 import SymbolFile
from streams.operators.symbolize import Symbolizer
from streams.partition.process import Operators, Processor
from tests.data.handwritten import Raw, Sample, raw_id
from tests.streams.outputs import stacks

MAPPINGS = [Mapping(), Mapping(kind=Mapping.FILE, build_id="gnu:aa", file="/bin/p"), Mapping(kind=Mapping.NAMED)]


def test_locations_are_named_when_their_symbols_are_there_and_asked_for_when_not(
    symbols: tuple[SymbolFile, int], tmp_path: Path
) -> None:
    file, address = symbols
    caches, wanted = SymCaches(tmp_path), list[tuple[str, str, str]]()
    symbolizer = Symbolizer(caches, lambda *want: wanted.append(want))
    raw = decode_raw(
        Raw([Sample(1)], [[0, 1, 2, 3]], [(1, address), (0, 5), (2, 8), (1, 1)], mappings=MAPPINGS).bytes()
    )
    ids = np.arange(1, 5, dtype=np.uint64)
    rows = np.arange(4)
    before = symbolizer.names(raw, rows, ids)
    assert [(named.version, [line.function for line in named.lines]) for named in before] == [
        (0, []), (0, []), (1, ["f"]), (0, []),
    ]  # fmt: skip
    assert wanted == [("gnu:aa", "host", "/bin/p")] * 2
    caches.add(file)
    for _ in range(2):  # looked up, then cached
        after = symbolizer.names(raw, rows, ids)
        assert [(named.version, [line.function for line in named.lines]) for named in after] == [
            (7, ["work"]), (0, []), (1, ["f"]), (0, []),
        ]  # fmt: skip
    assert after[0].lines[0].file.endswith("p.c")
    assert after[0].lines[0].line == 1
    assert len(wanted) == 2


def test_only_what_is_announced_is_looked_up(symbols: tuple[SymbolFile, int], tmp_path: Path) -> None:
    file, address = symbols
    caches = SymCaches(tmp_path)
    caches.add(file)
    asked: list[int] = []

    def names(raw: RawColumns, rows: np.ndarray, ids: np.ndarray) -> list[LocationNames]:
        asked.extend(rows.tolist())
        return Symbolizer(caches).names(raw, rows, ids)

    processor = Processor(Operators(symbolize=names))
    raw = Raw([Sample(1)], [[0]], [(1, address), (1, 99)], mappings=MAPPINGS)
    _, locations = stacks(processor.raw(raw.bytes(), raw_id()).stacks)
    assert list(locations.values()) == [("work",)]
    assert asked == [0]
