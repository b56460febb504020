"""Where a message lies in Kafka."""

from dataclasses import dataclass, field

from icestream.v1.common_pb2 import BatchId, Source


@dataclass(frozen=True)
class MessageId:
    """A message, by its cluster, topic, partition and offset."""

    cluster: str
    topic: str
    partition: int
    offset: int
    checksum: int = field(default=0, compare=False)
    """See icestream/kafka/log_mark.py; 0: not known."""

    def source(self, batch: BatchId) -> Source:
        """Returns the `Source` of outputs that are made of this message, which holds `batch`."""
        return Source(
            batch=batch, cluster=self.cluster, topic=self.topic, partition=self.partition, offset=self.offset,
            part=0, parts=1,
        )  # fmt: skip
