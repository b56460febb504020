"""What a job computes of many batches at once is what live processing stores of them one by one."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from gateway.encode import encode
from gateway.readers.pprof import Source, read_pprof
from icestream.columns import packed
from icestream.labels.request_labels import NO_LABELS
from icestream.messages import identify
from icestream.messages.activity import decode_activity
from icestream.messages.message_id import MessageId
from icestream.messages.plausible import ANY_TIME
from icestream.messages.raw import RawColumns, decode_raw
from icestream.messages.samples import decode_samples
from icestream.messages.stacks import decode_stacks
from icestream.topics import ACTIVITY, RAW
from icestream.v1.raw_pb2 import RawBatch
from jobs.recompute.outputs import OperatorState, outputs
from jobs.recompute.unit_activity import UnitActivity
from sinks.clickhouse.stored_batches import Batch
from sinks.tables.samples import sample_tables
from sinks.tables.stacks import stack_tables
from streams.operators.attach import Attached, ThreadIntervals, attach
from streams.partition.process import Operators, Processor
from tests.data.fleet import Fleet
from tests.data.windows import window
from tests.gateway.profiles import maker

T0 = 1_770_000_000 * 10**9

Batches = Sequence[tuple[bytes, bytes]]
"""Raw and activity messages."""


def one_by_one(batches: Batches, operators: Operators) -> tuple[pa.Table, list[Batch], set[int], set[int]]:
    processor = Processor(operators)
    for offset, (_, activity) in enumerate(batches):
        processor.activity(activity, MessageId("C", ACTIVITY, 0, offset))
    results = [processor.raw(raw, MessageId("C", RAW, 0, offset)) for offset, (raw, _) in enumerate(batches)]
    samples = [sample_tables(decode_samples(message), NO_LABELS) for result in results for message in result.samples]
    stacks = [stack_tables(decode_stacks(message)) for result in results for message in result.stacks]
    return (
        pa.concat_tables([one.rows for one in samples]),
        [one.batch for one in samples],
        {series for one in samples for series in one.series},
        {node for one in stacks for node in one.nodes["node_id"].to_pylist()},
    )


def at_once(batches: Batches, operators: Operators) -> tuple[pa.Table, list[Batch], set[int], set[int]]:
    activity = UnitActivity()
    for _, message in batches:
        activity.add(decode_activity(message))
    raws = [operators.changed(decode_raw(raw)) for raw, _ in batches]
    inputs = [(MessageId("C", RAW, 0, offset), raw) for offset, raw in enumerate(raws)]
    results = outputs(OperatorState(operators), activity, inputs)
    return (
        results.samples,
        [batch for _, batch in results.batches],
        set(results.series["series_id"].to_pylist()),
        {node for one in results.stacks for node in one.nodes["node_id"].to_pylist()},
    )


def fleet() -> Batches:
    made = [Fleet().window(host, sequence, T0 + sequence * 5 * 10**9) for sequence in (1, 2, 3) for host in range(5)]
    return [(one.raw, one.activity) for one in made]


def named() -> Batches:
    """Hosts with other texts and clocks, two runs of one collector, and windows without samples."""
    made = [window(T0, sequence, host, samples=40 * host, seed=host) for sequence in (1, 2) for host in (0, 1, 2)]
    made.append(window(T0, 1, host=1, started_unix_nano=7, seed=9))
    return [(one.raw, one.activity) for one in made]


def sent() -> Batches:
    """What the gateway makes of profiles whose locations have several lines, beside a window of a collector."""
    profiles = []
    for number in range(3):
        made = maker([("cpu", "nanoseconds")], ("cpu", "nanoseconds"))
        for row in range(1, 6):
            file = made.string(f"{row * number}.go")
            made.profile.function.add(id=row, name=made.string(f"f{row + number}"), filename=file, start_line=row)
            location = made.profile.location.add(id=row)
            for inlined in range(1, row + 1):
                location.line.add(function_id=inlined, line=10 * row + number)
            made.profile.sample.add(location_id=range(row, 0, -1), value=[row])
        profiles.append(made.done().SerializeToString())
    source = Source((("service", "shop"),))
    raws = [encode(read_pprof(profile, source, 10), ANY_TIME).messages[0] for profile in profiles]
    collected = window(T0, 1, samples=50)
    return [
        (raws[0], collected.activity),
        (collected.raw, collected.activity),
        *((raw, collected.activity) for raw in raws[1:]),
    ]


def wrong() -> Batches:
    """Windows of which some give their stacks IDs that are not theirs."""
    made = [(one, decode_raw(one.raw)) for one in (window(T0, 1, host, samples=40, seed=host) for host in (0, 1, 2))]
    ids = [np.arange(1, 1 + len(raw.stack_depth)).astype(np.uint64) for _, raw in made]
    ids[1] = np.roll(identify.stack_ids(made[1][1]), 1)
    ids[2][:] = 0
    return [
        (one.raw + packed.serialize(RawBatch(), {"stack_id": given}), one.activity)
        for (one, _), given in zip(made, ids, strict=True)
    ]


def large() -> Batches:
    """A window that becomes several messages, between others."""
    made = [window(T0, 1, samples=50), window(T0, 2, samples=30_000), window(T0, 3, samples=50)]
    return [(one.raw, one.activity) for one in made]


def own_attach(raw: RawColumns, intervals: ThreadIntervals) -> Attached:
    """An operator of a user."""
    return attach(raw, intervals)


def doubled(raw: RawColumns) -> RawColumns:
    return dataclasses.replace(raw, sample_value=raw.sample_value * 2)


@pytest.mark.parametrize(
    "batches",
    [fleet(), named(), sent(), wrong(), pytest.param(large(), marks=pytest.mark.slow)],
    ids=["fleet", "named", "sent", "wrong", "large"],
)
@pytest.mark.parametrize("operators", [Operators(), Operators(attach=own_attach), Operators(change=doubled)])
def test_many_batches_at_once_give_the_rows_of_one_by_one(batches: Batches, operators: Operators) -> None:
    expected, expected_batches, expected_series, expected_nodes = one_by_one(batches, operators)
    rows, found_batches, series, nodes = at_once(batches, operators)
    assert found_batches == expected_batches
    assert (series, nodes) == (expected_series, expected_nodes)
    for name in expected.column_names:
        assert rows[name].to_pylist() == expected[name].to_pylist(), name


def test_some_samples_meet_an_interval_and_some_do_not() -> None:
    rows, *_ = at_once(fleet(), Operators())
    traced = np.array([trace != bytes(16) for trace in rows["trace_id"].to_pylist()])
    assert 0.3 < traced.mean() < 0.7
