"""What a worker remembers of messages is bounded by bytes, whatever the messages hold."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from icestream.messages import checks
from icestream.messages.raw import RawColumns
from icestream.messages.stack_encoder import LocationNames
from icestream.settings import KafkaSettings
from icestream.symbols.demangle import NAMES_BYTES, demangle
from icestream.symbols.line import Line
from icestream.symbols.symcache import START_LINES_BYTES, SymCaches
from icestream.topics import ACTIVITY, RAW
from icestream.v1.common_pb2 import BatchId, Mapping
from streams.flatten import operations_reader
from streams.flatten.operations_reader import OperationsReader
from streams.operators import symbolize
from streams.operators.retained import Retained, RetainedLimits, RunId
from streams.operators.series_encoder import SERIES_BYTES, SeriesEncoder
from streams.operators.symbolize import Symbolizer
from streams.partition.process import Processor
from streams.partition.state import PartitionState
from streams.symbols.late_names import LATE_BYTES, LateNames
from streams.symbols.symbol_requester import WANTED_BYTES, SymbolRequester
from tests.data.handwritten import Interval, activity, activity_id
from tests.data.messages import context, raw_series

pytestmark = pytest.mark.slow


def series(number: int, size: int) -> tuple[tuple[str, str], ...]:
    return tuple((f"label{i}", f"{number:09}" + "x" * size) for i in range(10))


def grown(use: Callable[[int], object], count: int) -> int:
    """Bytes that are still allocated after `count` uses."""
    tracemalloc.start()
    try:
        for number in range(count):
            use(number)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_series_that_are_remembered() -> None:
    encoder = SeriesEncoder()
    used = grown(lambda number: encoder.encode(series(number, 1000)), 3500)
    assert SERIES_BYTES / 2 < used < 1.2 * SERIES_BYTES


def test_labels_that_were_checked() -> None:
    def use(number: int) -> None:
        checks.labels([raw_series(dict(series(number, 1000)))])

    assert checks.LABELS_BYTES / 2 < grown(use, 3500) < 1.2 * checks.LABELS_BYTES


def test_names_that_are_remembered() -> None:
    symbolizer = Symbolizer(None)

    def use(number: int) -> None:
        line = Line(f"{number}" + "f" * 5000, f"{number}" + "p" * 500, 1, 1)
        symbolizer._cache.put(number, LocationNames(1, (line,)))

    assert symbolize.CACHED_BYTES / 2 < grown(use, 15_000) < 1.2 * symbolize.CACHED_BYTES


def test_readable_names() -> None:
    def use(number: int) -> None:
        demangle(f"_ZN4some{len(str(number)) + 1}f{number}E" + "v" * 3000)

    assert NAMES_BYTES / 2 < grown(use, 5000) < 1.2 * NAMES_BYTES


def test_first_lines_of_functions(tmp_path: Path) -> None:
    starts = SymCaches(tmp_path)._starts
    used = grown(lambda number: starts.put((f"/a/{number % 50}", number), number), 250_000)
    assert START_LINES_BYTES / 2 < used < 1.2 * START_LINES_BYTES


def test_symbols_that_are_asked_for() -> None:
    requests = SymbolRequester()
    used = grown(lambda number: requests.want(f"gnu:{number}", f"host-{number}", f"/{number}" + "p" * 3000), 12_000)
    assert WANTED_BYTES / 2 < used < 1.2 * WANTED_BYTES


@pytest.mark.parametrize("size", [10, 3000])
def test_locations_whose_names_come_late(size: int, tmp_path: Path) -> None:
    late = LateNames(SymCaches(tmp_path))

    def use(number: int) -> None:
        mapping = Mapping(kind=Mapping.FILE, build_id=f"gnu:{number}", file="p" * size)
        late.wait(mapping, 2**63 + number, 2**62 + number, 2**60 + number)

    assert LATE_BYTES / 2 < grown(use, 2 * LATE_BYTES // (size + 400)) < 1.2 * LATE_BYTES


@pytest.mark.parametrize("size", [10, 1000])
def test_operations_of_trace_contexts(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 4_000_000
    monkeypatch.setattr(operations_reader, "_BYTES", limit)
    reader = OperationsReader(KafkaSettings(), in_process=False)
    count = 2 * limit // (size + 200)
    used = grown(lambda n: reader._names.put(n.to_bytes(24, "big"), f"{n:09}" + "o" * size), count)
    reader.close()
    assert limit / 2 < used < 1.2 * limit


def test_latest_runs_of_collectors() -> None:
    limit = 4_000_000
    state = PartitionState(RetainedLimits(run_bytes=limit))

    def use(number: int) -> None:
        raw = SimpleNamespace(id=BatchId(collector=f"{number:0256}", started_unix_nano=7), start_unix_nano=8)
        state.notice_run(cast(RawColumns, raw))

    assert limit / 16 < grown(use, 4000) < 1.2 * limit / 8


@pytest.mark.parametrize(
    ("batches", "step", "parts", "runs"), [(64, 1, 1, 400), (3, 900, 1, 150), (64, 1, 10_000, 100)]
)
def test_runs_of_collectors(batches: int, step: int, parts: int, runs: int) -> None:
    """Runs with many windows, with many gaps, and with absurdly many parts."""
    limit = 4_000_000
    state = PartitionState(RetainedLimits(run_bytes=limit))

    def use(number: int) -> None:
        for sequence in range(1, 1 + batches * step, step):
            batch = BatchId(collector=f"{number}", started_unix_nano=7, sequence=sequence, part=parts - 1, parts=parts)
            for topic in (RAW, ACTIVITY):
                state.add(batch, topic)

    used = grown(use, runs)
    assert limit * 3 / 8 < used < 1.2 * limit


def test_runs_whose_samples_may_be_retained() -> None:
    limit = 4_000_000
    retained = Retained(RetainedLimits())
    retained.run_budget_bytes = limit

    def use(number: int) -> None:
        retained.samples(RunId(f"{number:0256}", f"{number:0256}", number))

    assert limit / 4 < grown(use, 4000) < 1.2 * limit


@pytest.mark.parametrize("size", [10, 1000])
def test_intervals_whose_operations_all_have_names_of_their_own(size: int) -> None:
    limit = 8_000_000
    processor = Processor(limits=RetainedLimits(bytes=limit))

    def use(number: int) -> None:
        names = (f"{number:05} {tid:03}".ljust(size, "o") for tid in range(200))
        found = [Interval(tid, 0, 9, context(tid + 1), operation=name) for tid, name in enumerate(names)]
        processor.activity(activity(found, sequence=number + 1), activity_id(number))

    assert limit / 8 < grown(use, 3 * limit // (200 * (size + 150))) < 1.2 * limit / 2
