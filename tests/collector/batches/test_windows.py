"""What a window says of the host beside its samples."""

import os
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collector.activity.intervals import ActivityIntervals
from collector.batches.windows import DrainedWindow, Windows
from collector.bpf.samples import DrainedSamples
from collector.generated_code import GeneratedCode
from collector.labels.label_config import LabelConfig
from collector.labels.thread_labels import ThreadLabels
from collector.processes.mapped_files import FileCache
from collector.processes.mappings import ProcessMappings
from collector.runtimes.processes import Runtimes
from icestream.labels.operations import MANY_OPERATIONS, OperationNames
from icestream.labels.relabel_config import parse_rules
from icestream.labels.request_labels import NO_LABELS, RequestLabels
from icestream.messages.activity import ActivityColumns, decode_activity
from icestream.topics import ACTIVITY
from icestream.v1.activity_pb2 import Span
from icestream.v1.raw_pb2 import RawBatch

EMPTY = np.empty(0, np.uint64)
NO_ACTIVITY = ActivityIntervals(*([EMPTY] * 7))


PID = os.getpid()


def make_windows(*rules: dict[str, Any], most_operations: int = 1000, sets: RequestLabels = NO_LABELS) -> Windows:
    """The windows of a host without known processes."""
    files = FileCache()
    maps: Any = None  # no process is told about
    runtimes = Runtimes(files.open, maps)
    host: Any = SimpleNamespace(mappings=ProcessMappings(files), runtimes=runtimes, generated=GeneratedCode())
    labels = ThreadLabels("host-1", LabelConfig(rules=parse_rules(list(rules), "here")))
    names = OperationNames(most_operations)
    return Windows("host-1", host, labels, names, sets, configured_period_ns=10_000_000)


@pytest.fixture
def windows() -> Windows:
    return make_windows()


def idle(end_monotonic_ns: int, lost: int = 0) -> DrainedWindow:
    """5 s in which nothing ran."""
    return DrainedWindow(
        DrainedSamples(*([EMPTY] * 13), lost=lost), end_monotonic_ns - 5 * 10**9, end_monotonic_ns, period_ns=20_000_000
    )


def test_a_host_on_which_nothing_runs_still_sends_a_batch_a_minute(windows: Windows) -> None:
    now = time.monotonic_ns()
    sent = [windows.messages(idle(now + s * 10**9), NO_ACTIVITY, {}) for s in range(0, 181, 5)]
    assert [5 * i for i, messages in enumerate(sent) if messages] == [60, 120, 180]
    batches = [RawBatch.FromString(message.value) for messages in sent for message in messages]
    assert [batch.id.sequence for batch in batches] == [1, 2, 3]


def test_lost_and_dropped_samples_and_a_lowered_frequency_are_told_apart(windows: Windows) -> None:
    (message,) = windows.messages(idle(time.monotonic_ns(), lost=3), NO_ACTIVITY, {}, dropped_samples=4)
    batch = RawBatch.FromString(message.value)
    assert (batch.lost_samples, batch.dropped_samples) == (3, 4)
    assert (batch.period, batch.configured_period) == (20_000_000, 10_000_000)


def sampled(tids: Sequence[int], spans: Sequence[str] = ()) -> DrainedWindow:
    """A sample of each of these threads of this process, now; their spans have these names."""
    now, n = time.monotonic_ns(), len(tids)
    one = np.zeros(1, np.uint32)
    samples = DrainedSamples(
        time_monotonic_ns=np.full(n, now, np.uint64),
        pid=np.full(n, PID, np.uint32),
        tid=np.array(tids, np.uint32),
        stack=np.zeros(n, np.uint32),
        context=np.zeros(n, np.uint32),
        stack_pid=np.array([PID], np.uint32),
        stack_kernel_depth=one, stack_depth=one, frames=EMPTY, stack_end=one.astype(np.uint8), stack_managed=one,
        managed_words=EMPTY, managed_info=EMPTY,
        span_name=np.arange(1, n + 1, dtype=np.uint32) if spans else None, span_names=tuple(spans),
    )  # fmt: skip
    return DrainedWindow(samples, now - 10**9, now, period_ns=20_000_000)


def active(tids: Sequence[int], operations: Sequence[str] = ()) -> ActivityIntervals:
    """An interval of each of these threads of this process, which calls itself shop: each in a context of its own, with
    these operations. A span is named by each operation."""
    n, now = len(tids), time.monotonic_ns()
    strings = ["", "shop", *operations]
    return ActivityIntervals(
        start_monotonic_ns=np.full(n, now - 10**6, np.uint64),
        duration_ns=np.full(n, 10**6, np.uint64),
        thread_cpu_ns=np.arange(1, n + 1).astype(np.uint64),
        pid=np.full(n, PID, np.uint32),
        tid=np.array(tids, np.uint32),
        context=np.arange(n, dtype=np.uint32),
        service=np.ones(n, np.uint32),
        trace_ids=b"\1" * 16 * n,
        span_ids=b"".join(i.to_bytes(8, "big") for i in range(1, n + 1)),
        entry_span_ids=b"\1" * 8 * n,
        operation=np.arange(2, n + 2, dtype=np.uint32) if operations else np.zeros(n, np.uint32),
        strings=strings,
        spans=[
            Span(trace_id=b"\1" * 16, span_id=b"\1" * 8, name=name, operation=name, service="shop",
                 start_unix_nano=now - 10**6, end_unix_nano=now)
            for name in operations
        ],
        span_pid=np.full(len(operations), PID, np.uint32),
    )  # fmt: skip


def decoded(
    windows: Windows, drained: DrainedWindow, intervals: ActivityIntervals
) -> tuple[list[ActivityColumns], list[RawBatch]]:
    messages = windows.messages(drained, intervals, {PID: "shop"})
    return (
        [decode_activity(m.value) for m in messages if m.topic == ACTIVITY],
        [RawBatch.FromString(m.value) for m in messages if m.topic != ACTIVITY],
    )


def sampled_services(raw: RawBatch) -> list[str]:
    return [label.value for series in raw.series for label in series.labels if label.name == "service"]


def services(activity: ActivityColumns) -> list[str]:
    return [activity.strings[row] for row in activity.service.tolist()]


def test_activity_has_the_service_that_samples_of_its_process_have() -> None:
    tid = threading.get_native_id()
    rename = {"source_labels": ["service"], "regex": "(shop)", "target_label": "service", "replacement": "$1-eu"}
    (activity,), (raw,) = decoded(make_windows(rename), sampled([tid]), active([tid, 0], ["GET /a", "GET /b"]))
    assert sampled_services(raw) == ["shop-eu"]
    assert services(activity) == ["shop-eu", "shop-eu"]  # a thread that is not known has its process's
    assert activity.spans.service.texts() == ["shop-eu", "shop-eu"]
    assert [activity.strings[row] for row in activity.operation.tolist()] == ["GET /a", "GET /b"]


def test_activity_of_a_process_without_samples_has_its_labels_too() -> None:
    rename = {"source_labels": ["executable"], "regex": "python.*", "target_label": "service", "replacement": "by file"}
    (activity,), _ = decoded(make_windows(rename), idle(time.monotonic_ns()), active([PID], ["GET /a"]))
    assert (services(activity), activity.spans.service.texts()) == (["by file"], ["by file"])


def test_a_rule_may_name_the_service_of_some_threads_only() -> None:
    rule = {"source_labels": ["thread_name"], "regex": "other", "target_label": "service", "replacement": "jobs"}
    tid = PID + 100_000
    drained = sampled([tid])
    drained.samples.comms[tid] = "other"  # it has ended: only its sample says what its name was
    (activity,), (raw,) = decoded(make_windows(rule), drained, active([PID, tid], ["GET /a", "job"]))
    assert services(activity) == ["shop", "jobs"]
    assert sampled_services(raw) == ["jobs"]
    assert activity.spans.service.texts() == ["shop", "shop"]


def test_activity_of_dropped_threads_is_not_sent() -> None:
    drop = {"action": "drop", "source_labels": ["service"], "regex": "shop"}
    assert decoded(make_windows(drop), sampled([PID]), active([PID], ["GET /a"])) == ([], [])
    main = {"action": "drop", "source_labels": ["thread_name"], "regex": ".*"}
    kept = {"source_labels": ["__meta_tid"], "regex": "999999", "target_label": "thread_name", "replacement": ""}
    (activity,), _ = decoded(
        make_windows(kept, main | {"regex": ".+"}), sampled([]), active([PID, 999_999], ["a", "b"])
    )
    assert (services(activity), activity.thread_cpu_ns.tolist()) == (["shop"], [2])
    assert activity.spans.service.texts() == ["shop", "shop"]  # a thread of its process is sent
    dropped = active([PID], ["GET /a"])
    dropped = ActivityIntervals(**vars(dropped) | {"dropped": 3})
    (activity,), _ = decoded(make_windows(drop), sampled([PID]), dropped)
    assert (len(activity.context), activity.spans.name.texts()) == (0, [])


def test_services_that_a_rule_makes_one_have_the_operations_of_one() -> None:
    rename = {"source_labels": ["thread_name"], "target_label": "service", "replacement": "shop"}
    windows = make_windows(rename, most_operations=2)
    (activity,), _ = decoded(windows, sampled([]), active([PID] * 3, ["a", "b", "c"]))
    assert [activity.strings[row] for row in activity.operation.tolist()] == ["a", "b", MANY_OPERATIONS]
    assert activity.spans.operation.texts() == ["a", "b", MANY_OPERATIONS]


def test_samples_in_spans_that_have_names_are_series_with_these_and_count_among_the_operations_of_a_service() -> None:
    windows, tid = make_windows(most_operations=3), threading.get_native_id()
    drained = sampled([tid] * 4, ["GET /a", "GET /b", "GET /a", "GET /c"])
    _, (raw,) = decoded(windows, drained, active([tid] * 2, ["GET /b", "GET /d"]))
    series = [{label.name: label.value for label in series.labels} for series in raw.series]
    assert [series[row]["span_name"] for row in raw.sample_series] == ["GET /a", "GET /b", "GET /a", MANY_OPERATIONS]
    assert {each["service"] for each in series} == {"shop"}
    (raw,) = (RawBatch.FromString(m.value) for m in windows.messages(sampled([tid]), NO_ACTIVITY, {}))
    assert not {label.name for series in raw.series for label in series.labels} & {"span_name"}


def test_activity_has_labels_of_its_process_up_to_a_number_of_sets_of_a_service() -> None:
    version = {"source_labels": ["__meta_tid"], "target_label": "service_version", "regex": "(.*)"}
    one_service = {"target_label": "service", "replacement": "shop"}
    sets = RequestLabels(["service_version"], limit=2)
    others = [999_998, 999_999]
    (activity,), _ = decoded(
        make_windows(one_service, version, sets=sets), sampled([]), active([PID, *others], ["a", "b", "c"])
    )
    expected = [f'{{"service_version":"{pid}"}}' for pid in (PID, others[0])] + [""]
    assert [activity.strings[row] for row in activity.labels.tolist()] == expected
    assert activity.spans.labels.texts() == expected[:1] * 3  # of their process, whose main thread this is
    assert sets.emptied == 1
