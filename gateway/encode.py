"""Makes a profile into raw batches: one batch for each profile type, in as many messages as it needs."""

import dataclasses
import time
import uuid
from dataclasses import dataclass

import numpy as np
import xxhash

from gateway.errors import bad_profile, too_many
from gateway.sent_profile import SentProfile, Values
from gateway.series_limit import SeriesLimit
from gateway.stack_ids import stack_ids
from icestream.messages import checks, raw_encoder
from icestream.messages.checks import BadMessage
from icestream.messages.plausible import Times
from icestream.messages.raw import GATEWAY, read_header
from icestream.messages.raw_encoder import Window, to_mapping
from icestream.times import HOUR_NS
from icestream.v1.common_pb2 import BatchId
from icestream.v1.raw_pb2 import RawBatch

MAX_IDENTIFIED = 1_000_000
"""Stacks of a profile with at most this many frames get IDs here: each frame takes 100 bytes of memory meanwhile.
Streams compute the IDs of others, a message at a time."""
MAX_BYTES = 64_000_000
"""The most bytes of the messages of a profile, which has its stacks once for each profile type."""
_NO_ACTIVITY_NS = HOUR_NS


@dataclass(frozen=True)
class Encoded:
    """The messages of a profile for icestream.raw."""

    key: bytes
    messages: list[bytes]
    samples: int  # of all profile types


def encode(profile: SentProfile, times: Times, limit: SeriesLimit | None = None) -> Encoded:
    """Encodes a profile, and counts in its `dropped` the samples whose series are beyond the limit. Every message
    passes the checks of those who read it. Raises Refused.

    What a profile holds is checked before that, as to decode the messages would take as long as to encode them. Indices
    and lengths of columns are right, as the readers and `raw_encoder` made them.
    """
    messages, samples, size = [], 0, 0
    given = _with_stack_ids(profile.window)
    limited, lost = (given, 0) if limit is None else limit.apply(given)
    if lost:
        profile.dropped["series"] += lost
    try:
        _check_tables(given)
        for values in profile.values:
            window = _rows_with_values(given, values)
            if len(window.pid):
                _check_values(window)
                samples += len(window.pid)
                made = _batch(profile, values, window, _rows_with_values(limited, values) if lost else None)
                for message in made:
                    read_header(message, times)
                size += sum(map(len, made))
                if size > MAX_BYTES:
                    raise too_many(MAX_BYTES, "bytes of messages: there are many profile types, or labels")
                messages += made
    except BadMessage as error:
        raise bad_profile(f"no message may hold this: {error}") from None
    return Encoded(profile.host_id.encode(), messages, samples)


def _check_tables(window: Window) -> None:
    """Raises BadMessage."""
    stacks = window.stacks
    checks.mappings([to_mapping(stacks.mappings[row]) for row in np.unique(stacks.mapping).tolist()])
    checks.check_most("series", len(window.labels), checks.MAX_ENTRIES)
    for labels in window.labels:
        checks.check_labels(labels)


def _check_values(window: Window) -> None:
    """Raises BadMessage."""
    if window.value is not None:
        checks.check_sum("sample_value", window.value)
    if window.count is not None:
        checks.check_column("sample_count", window.count, checks.MAX_OBSERVATIONS)


def _with_stack_ids(window: Window) -> Window:
    if window.stacks.ids is not None or len(window.stacks.frames) > MAX_IDENTIFIED:
        return window
    return dataclasses.replace(window, stacks=dataclasses.replace(window.stacks, ids=stack_ids(window.stacks)))


def _batch(profile: SentProfile, values: Values, window: Window, limited: Window | None) -> list[bytes]:
    """Returns the messages of one profile type.

    The ID of the batch, and which samples are in which part, depend on the series as they were sent, not on the limit:
    a profile that comes again is the same batch of the same parts, in any gateway, and counts once.
    """
    common = RawBatch(
        host_id=profile.host_id,
        profile_type=values.profile_type,
        period=max(values.period, 1),
        # No activity belongs to it. Nothing waits for it, as all there is was published long after the batch.
        activity_complete_unix_nano=window.end_unix_nano + _NO_ACTIVITY_NS,
    )
    try:
        parts = raw_encoder.split(window, common, relabelled=limited)
    except ValueError as error:  # a number does not fit its column
        raise bad_profile(str(error)) from None
    digest = xxhash.xxh3_128(
        repr((profile.host_id, values.profile_type, profile.window.labels, window.start_unix_nano)).encode()
    )
    digest.update(profile.identity or uuid.uuid4().bytes)
    batch_id = BatchId(collector=f"{GATEWAY}{digest.hexdigest()}", started_unix_nano=window.start_unix_nano, sequence=1)
    return raw_encoder.finish(parts, batch_id, time.time_ns())


def _rows_with_values(window: Window, values: Values) -> Window:
    rows = np.flatnonzero(values.value)
    if len(rows) and values.value[rows].min() < 0:
        raise bad_profile(f"{values.profile_type}: expected no negative values; a difference of profiles is not taken")
    return dataclasses.replace(
        window,
        time_unix_nano=window.time_unix_nano[rows],
        series=window.series[rows],
        pid=window.pid[rows],
        tid=window.tid[rows],
        stack=window.stack[rows],
        context=window.context[rows],
        value=values.value[rows],
        count=None if values.count is None else values.count[rows],
    )
