"""Windows as raw batches: nothing lost or mixed up by deduplication or by splitting, every part on its own."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.batches.locations import locate
from collector.bpf.samples import ENDS, DrainedSamples
from collector.kernel import Kernel
from collector.processes.mapped_files import UNKNOWN, FileCache, MappedFile
from collector.processes.mapped_history import nowhere
from collector.processes.mappings import Located, ProcessMappings
from collector.processes.perfmap import JitName
from icestream.columns.packed import column
from icestream.messages import raw_encoder
from icestream.v1.common_pb2 import BatchId, Mapping
from icestream.v1.raw_pb2 import RawBatch

LIBRARY = MappedFile(Mapping.FILE, "gnu:aa", "/lib/a.so")
JIT = MappedFile(Mapping.NAMED, "", "[jit]")
BASE = 0x7F00_0000_0000


class Processes(ProcessMappings):
    """Process p has LIBRARY at BASE + p * 2^32, and compiled code that it named below address 100."""

    def __init__(self) -> None:
        super().__init__(FileCache())

    def locate(self, pid: int, addresses: np.ndarray, times_monotonic_ns: np.ndarray | None = None) -> Located:
        base = np.uint64(BASE + (pid << 32))
        in_library = (addresses >= base) & (addresses < base + np.uint64(1 << 32))
        name = np.where(addresses < 100, addresses, np.uint64(0)).astype(np.int64)
        file = np.where(in_library, 1, np.where(addresses < 100, 2, 0))
        address = np.where(in_library, addresses - base, np.uint64(0))
        names = [JitName(f"compiled {i} of {pid % 2}", "") for i in range(100)]
        return Located(file, address, np.where(addresses < 100, name, -1), [UNKNOWN, LIBRARY, JIT], names)


class NoKernel(Kernel):
    """Kernel code at 2^63 and up."""

    def __init__(self) -> None:
        pass

    def changes(self) -> np.ndarray:
        return np.zeros(0, np.uint64)

    def locate(self, addresses: np.ndarray, times_monotonic_ns: np.ndarray) -> Located:
        located = nowhere(len(addresses))
        located.files = [MappedFile(Mapping.KERNEL, "gnu:bb", "[kernel]")]
        located.address = addresses - np.uint64(1 << 63)
        return located


Stack = tuple[int, tuple[int, ...], tuple[int, ...], int]  # process, kernel frames, user frames, why these end
NOWHERE = 5000  # no mapping covers it
user_frame = st.one_of(st.just(NOWHERE), st.integers(1, 99), st.integers(1000, 1 << 31).map(lambda o: o | 1 << 40))
stacks = st.tuples(
    st.integers(1, 4),
    st.lists(st.integers(1, 1 << 30), max_size=3).map(tuple),
    st.lists(user_frame, max_size=5).map(tuple),
    st.integers(0, len(ENDS) - 1),
)
windows = st.lists(stacks, min_size=1, max_size=12).flatmap(
    lambda known: st.tuples(
        st.just(known),
        st.lists(
            st.tuples(
                st.integers(0, len(known) - 1),
                st.integers(0, 10**13),
                st.integers(1, 5),
                st.integers(0, 2),
                st.integers(0, 3),
            ),
            max_size=60,
        ),
    )
)


def to_samples(known: list[Stack], observed: list[tuple[int, int, int, int, int]]) -> DrainedSamples:
    frames = []
    for pid, kernel, user, _ in known:
        frames += [(1 << 63) + f for f in kernel]
        frames += [f if f <= NOWHERE else BASE + (pid << 32) + (f & 0xFFFFFFFF) for f in user]
    row = [o[0] for o in observed]
    return DrainedSamples(
        time_monotonic_ns=np.array([o[1] for o in observed], np.uint64),
        pid=np.array([known[r][0] for r in row], np.uint32),
        tid=np.array([o[2] for o in observed], np.uint32),
        stack=np.array(row, np.uint32),
        context=np.array([o[4] for o in observed], np.uint32),
        stack_pid=np.array([k[0] for k in known], np.uint32),
        stack_kernel_depth=np.array([len(k[1]) for k in known], np.uint32),
        stack_depth=np.array([len(k[1]) + len(k[2]) for k in known], np.uint32),
        frames=np.array(frames, np.uint64),
        stack_end=np.array([k[3] for k in known], np.uint8),
        stack_managed=np.zeros(len(known), np.uint32),
        managed_words=np.empty(0, np.uint64),
        managed_info=np.empty(0, np.uint64),
        trace_ids=bytes(range(48)),
        span_ids=bytes(range(24)),
        lost=7,
    )


def expected(known: list[Stack], observed: list[tuple[int, int, int, int, int]]) -> Counter[tuple[object, ...]]:
    """What a reader must find: each sample with its frames spelled out."""

    def frame(pid: int, address: int) -> tuple[object, ...]:
        if address < 100:
            return ("[jit]", f"compiled {address} of {pid % 2}", 0)
        return ("", "", 0) if address == NOWHERE else ("gnu:aa", "", address & 0xFFFFFFFF)

    found: Counter[tuple[object, ...]] = Counter()
    for row, time, tid, series, context in observed:
        pid, kernel, user, end = known[row]
        frames = [("gnu:bb", "", f - (i > 0)) for i, f in enumerate(kernel)]
        walked = user[: user.index(NOWHERE) + 1] if NOWHERE in user else user  # there the walk has lost its way
        frames += [frame(pid, f) for f in walked]
        frames += [("[truncated]", f"[truncated: {ENDS[end]}]", 0)] if end else []
        trace = (bytes(range(48))[16 * (context - 1) : 16 * context], bytes(range(24))[8 * (context - 1) : 8 * context])
        found[time // 1000, pid, tid, f"s{series}", trace if context else None, tuple(frames)] += 1
    return found


def read(values: list[bytes]) -> Counter[tuple[object, ...]]:
    found: Counter[tuple[object, ...]] = Counter()
    for value in values:
        message = RawBatch.FromString(value)
        assert message.mappings[0].kind == Mapping.UNKNOWN
        assert list(message.strings[:1]) in ([""], [])
        c = {
            field.name: column(message, field.name).tolist()
            for field in RawBatch.DESCRIPTOR.fields
            if columnar(field.name)
        }
        ends = np.cumsum(c["stack_depth"]).tolist()
        for i, time in enumerate(c["sample_offset_us"]):
            stack = c["sample_stack"][i]
            rows = c["stack_frames"][ends[stack] - c["stack_depth"][stack] : ends[stack]]
            frames = []
            for row in rows:
                mapping = message.mappings[c["location_mapping"][row]]
                function = message.strings[c["location_function"][row]] if c["location_function"] else ""
                frames.append((mapping.build_id or mapping.file, function, c["location_address"][row]))
            context = c["sample_context"][i]
            trace = (
                message.context_trace_ids[16 * (context - 1) : 16 * context],
                message.context_span_ids[8 * (context - 1) : 8 * context],
            )
            series = message.series[c["sample_series"][i]].labels[0].value
            unix = message.start_unix_nano + 1000 * time
            assert message.start_unix_nano <= unix < message.end_unix_nano
            key = (
                unix // 1000,
                c["sample_pid"][i],
                c["sample_tid"][i],
                series,
                trace if context else None,
                tuple(frames),
            )
            found[key] += 1
    return found


def columnar(name: str) -> bool:
    return name.startswith(("location_", "stack_", "sample_"))


def window(known: list[Stack], observed: list[tuple[int, int, int, int, int]]) -> raw_encoder.Window:
    samples = to_samples(known, observed)
    stacks = locate(samples, Processes(), NoKernel())
    return raw_encoder.Window(
        time_unix_nano=samples.time_monotonic_ns.astype(np.int64) // 1000 * 1000,
        series=np.array([o[3] for o in observed], np.int64),
        pid=samples.pid,
        tid=samples.tid,
        stack=stacks.row,
        context=samples.context.astype(np.int64),
        stacks=stacks,
        labels=[(("service", f"s{i}"),) for i in range(3)],
        trace_ids=samples.trace_ids,
        span_ids=samples.span_ids,
        start_unix_nano=0,
        end_unix_nano=5 * 10**9,
    )


@given(windows, st.sampled_from([1000, 2000, 900_000]))
def test_every_sample_is_in_one_part_with_its_own_stack_series_and_context(
    given_window: tuple[list[Stack], list[tuple[int, int, int, int, int]]], room: int
) -> None:
    known, observed = given_window
    limit = raw_encoder.HEADER_BYTES + room
    parts = raw_encoder.split(window(known, observed), RawBatch(host_id="h", lost_samples=7, dropped_samples=8), limit)
    finished = raw_encoder.finish(parts, BatchId(collector="h", started_unix_nano=1, sequence=3), 9)
    messages = [RawBatch.FromString(value) for value in finished]
    assert [(m.id.sequence, m.id.part, m.id.parts) for m in messages] == [(3, i, len(parts)) for i in range(len(parts))]
    assert all(len(value) <= limit for value in finished)
    assert sum(m.lost_samples for m in messages) == 7
    assert sum(m.dropped_samples for m in messages) == 8
    assert all(m.host_id == "h" and m.published_unix_nano == 9 for m in messages)
    assert read(finished) == expected(known, observed)


def test_equal_stacks_of_different_processes_are_one_stack() -> None:
    known = [(1, (), (1 << 40 | 5000,), 0), (3, (), (1 << 40 | 5000,), 0)]
    parts = raw_encoder.split(window(known, [(0, 5, 1, 0, 0), (1, 6, 1, 0, 0)]), RawBatch())
    message = RawBatch.FromString(parts[0])
    assert (len(message.stack_depth), len(message.location_address)) == (1, 1)


def test_a_window_of_lost_samples_alone_says_so() -> None:
    parts = raw_encoder.split(window([(1, (), (), 0)], []), RawBatch(lost_samples=3))
    message = RawBatch.FromString(parts[0])
    assert message.lost_samples == 3
    assert len(message.sample_pid) == 0


def test_a_stack_too_large_for_a_message_leaves_its_sample_behind() -> None:
    known = [(1, (), tuple(range(1, 60)), 0)]
    parts = raw_encoder.split(window(known, [(0, 5, 1, 0, 0)]), RawBatch(), raw_encoder.HEADER_BYTES + 300)
    message = RawBatch.FromString(parts[0])
    assert (len(parts), list(message.sample_stack), list(message.stack_depth)) == (1, [0], [0])


def test_samples_hours_apart_get_parts_of_their_own() -> None:
    hours = [(0, hour * 3600 * 10**9, 1, 0, 0) for hour in (0, 1, 5, 30)]
    parts = raw_encoder.split(window([(1, (), (), 0)], hours), RawBatch())
    assert len(parts) == 4
    assert sum(read(parts).values()) == 4


@pytest.mark.parametrize("count", [200_000])
def test_a_large_window_becomes_parts_below_the_limit_quickly(count: int) -> None:
    import time

    rng = np.random.default_rng(1)
    known = [
        (1 + i % 4, (), tuple((1 << 40 | int(a)) for a in rng.integers(1000, 1 << 20, 35)), 0) for i in range(3000)
    ]
    samples = to_samples(known, [(row, 0, 1, 0, 0) for row in range(3000)])
    rows = rng.integers(0, 3000, count)
    started = time.thread_time()
    stacks = locate(samples, Processes(), NoKernel())
    big = raw_encoder.Window(
        time_unix_nano=np.sort(rng.integers(0, 5 * 10**9, count)), series=np.zeros(count, np.int64),
        pid=samples.stack_pid[rows], tid=samples.stack_pid[rows], stack=stacks.row[rows],
        context=np.zeros(count, np.int64), stacks=stacks, labels=[(("service", "s"),)], trace_ids=b"", span_ids=b"",
        start_unix_nano=0, end_unix_nano=5 * 10**9,
    )  # fmt: skip
    parts = raw_encoder.split(big, RawBatch())
    assert time.thread_time() - started < 2
    assert max(len(part) for part in parts) < 900_000
    assert sum(len(RawBatch.FromString(part).sample_pid) for part in parts) == count
