"""Which outputs of streams were read: one that is published again must not count twice."""

import json

from confluent_kafka import Consumer, KafkaException, TopicPartition

from icestream.v1.common_pb2 import Source

_KAFKA_S = 10.0
_REMEMBERED = 1000


class Sources:
    """The highest offset and part that was read of each source topic and partition, by partition of icestream.samples.

    Outputs of a source ascend, so one that is not above the highest comes again; unless its topic was made anew, or
    Kafka has lost its last messages, so that their offsets were given to others. Then it is of another batch than the
    one that had this offset, as far as that is remembered, or the topic ends before the highest offset.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._cluster: str | None = None
        self._answers = True
        self._highest: dict[int, dict[str, tuple[int, int]]] = {}
        self._batches: dict[tuple[int, str], dict[tuple[int, int], bytes]] = {}
        """The batches of the latest outputs of each source, by offset and part."""
        self._ends: dict[tuple[str, int], int] = {}

    def ask_again(self) -> None:
        """Forgets where source topics end. Call it when the next messages have been read."""
        self._answers = True
        self._ends.clear()

    def is_new(self, partition: int, source: Source) -> bool:
        """Notes an output that was read, and returns whether it was not read before."""
        highest = self._highest.setdefault(partition, {})
        origin, output = f"{source.cluster}/{source.topic}/{source.partition}", (source.offset, source.part)
        known = highest.get(origin, (-1, 0))
        batches, batch = self._batches.setdefault((partition, origin), {}), source.batch.SerializeToString()
        if output <= known:
            had = batches.get(output)
            if had == batch or (had is None and not self._ends_before(source, known[0])):
                return False
            batches.clear()
        highest[origin] = output
        batches[output] = batch
        if len(batches) > _REMEMBERED:
            del batches[next(iter(batches))]
        return True

    def metadata(self, partition: int) -> str:
        """Returns what to commit with an offset of icestream.samples."""
        return json.dumps(self._highest.get(partition, {}))

    def load(self, partition: int, metadata: str | None) -> None:
        """Takes what was committed."""
        stored = json.loads(metadata) if metadata else {}
        self._batches = {key: batches for key, batches in self._batches.items() if key[0] != partition}
        self._highest[partition] = {origin: (output[0], output[1]) for origin, output in stored.items()}

    def _ends_before(self, source: Source, offset: int) -> bool:
        """Returns whether the topic of a source has no such offset now. Without Kafka's answer, it is taken to have; as
        that takes _KAFKA_S, Kafka is not asked about the next messages."""
        if not self._answers:
            return False
        try:
            if self._cluster is None:
                self._cluster = str(self._consumer.list_topics(timeout=_KAFKA_S).cluster_id)
            if source.cluster != self._cluster:  # a copy of messages of another Kafka
                return False
            place = source.topic, source.partition
            if place not in self._ends:
                _, self._ends[place] = self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=_KAFKA_S)
        except KafkaException:
            self._answers = False
            return False
        return self._ends[place] <= offset
