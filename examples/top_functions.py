"""Prints the functions with most CPU every two seconds, from Kafka: python examples/top_functions.py 127.0.0.1:9092"""

import sys
import time
from collections import Counter

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from icestream.messages.samples import decode_samples
from icestream.messages.stack_names import StackNames
from icestream.messages.stacks import decode_stacks
from icestream.topics import DEFAULT_PROFILE_TYPE, PREFIX, SAMPLES, STACKS


def read_all_names(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Reads the names that were announced before this start: they are only in memory. Samples go on where they were."""
    for partition in partitions:
        if partition.topic == STACKS:
            partition.offset = OFFSET_BEGINNING
    consumer.assign(partitions)


consumer = Consumer(
    {
        "bootstrap.servers": sys.argv[1],
        "group.id": f"{PREFIX}top",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
)
consumer.subscribe([STACKS, SAMPLES], on_assign=read_all_names)
names, cpu_ns, last_print = StackNames(), Counter[int](), time.monotonic()
seen: dict[tuple[str, int], tuple[int, int]] = {}
while True:
    message = consumer.poll(1)
    if message is not None and message.error() is None and message.topic() == STACKS:
        names.learn(decode_stacks(message.value()))
    elif message is not None and message.error() is None:
        source = (samples := decode_samples(message.value())).source
        partition, output = (source.topic, source.partition), (source.offset, source.part)
        is_cpu = samples.profile_type == DEFAULT_PROFILE_TYPE  # else it has waits, or memory that another tool measured
        # Kafka delivers at least once: skips an output that comes again.
        if is_cpu and output > seen.get(partition, (-1, 0)):
            seen[partition] = output
            for stack_id, value in zip(samples.stack_id.tolist(), samples.value.tolist(), strict=True):
                cpu_ns[stack_id] += value
    if time.monotonic() > last_print + 2:
        last_print, functions = time.monotonic(), Counter[str]()
        for stack_id, value in cpu_ns.items():
            functions[names.leaf(stack_id)] += value
        print(
            "\n" + "\n".join(f"{value / 1e9:9.2f} s  {name}" for name, value in functions.most_common(10)), flush=True
        )
