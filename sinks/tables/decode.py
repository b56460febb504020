"""Messages of icestream.samples, icestream.stacks and icestream.activity as tables."""

from icestream.messages.activity import decode_activity
from icestream.messages.message_id import MessageId
from icestream.messages.samples import decode_samples
from icestream.messages.stacks import decode_stacks
from icestream.topics import SAMPLES, STACKS
from sinks.tables.activity import ActivityTables, activity_tables
from sinks.tables.samples import SampleTables, sample_tables
from sinks.tables.stacks import StackTables, stack_tables

Tables = SampleTables | StackTables | ActivityTables


def decode(data: bytes | None, message_id: MessageId) -> Tables:
    """Raises BadMessage."""
    if message_id.topic == SAMPLES:
        return sample_tables(decode_samples(data))
    if message_id.topic == STACKS:
        return stack_tables(decode_stacks(data))
    return activity_tables(decode_activity(data), message_id)
