"""Messages of icestream.samples, icestream.stacks and icestream.activity as tables."""

from icestream.labels.request_labels import NO_LABELS, RequestLabels
from icestream.messages.activity import decode_activity
from icestream.messages.message_id import MessageId
from icestream.messages.plausible import ANY_LIMITS, TimeLimits
from icestream.messages.samples import decode_samples
from icestream.messages.stacks import decode_stacks
from icestream.topics import SAMPLES, STACKS
from sinks.tables.activity import ActivityTables, activity_tables
from sinks.tables.samples import SampleTables, sample_tables
from sinks.tables.stacks import StackTables, stack_tables

Tables = SampleTables | StackTables | ActivityTables


def decode(
    data: bytes | None,
    message_id: MessageId,
    limits: TimeLimits = ANY_LIMITS,
    timestamp_ms: int = 0,
    sets: RequestLabels = NO_LABELS,
) -> Tables:
    """Raises BadMessage. `timestamp_ms`: Kafka's, of the message. `sets`: for samples; activity has its own."""
    if message_id.topic == SAMPLES:
        return sample_tables(decode_samples(data, limits.derived(timestamp_ms)), sets)
    if message_id.topic == STACKS:
        return stack_tables(decode_stacks(data, limits.derived(timestamp_ms)))
    return activity_tables(decode_activity(data, limits.collected(timestamp_ms)), message_id)
