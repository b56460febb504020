"""Prints the top functions every two seconds, from Kafka: python examples/top_functions.py 127.0.0.1:9092"""

import sys
import time
from collections import Counter

from confluent_kafka import Consumer

from icestream.stack_names import StackNames
from icestream.v1.samples_pb2 import SampleBatch
from icestream.v1.stacks_pb2 import StackBatch

consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "top", "auto.offset.reset": "earliest"})
consumer.subscribe(["icestream.stacks", "icestream.samples"])
names, cpu_ns, last_print = StackNames(), Counter[int](), time.monotonic()
seen: dict[tuple[str, int], tuple[int, int]] = {}
while True:
    message = consumer.poll(1)
    if message is not None and message.error() is None and message.topic() == "icestream.stacks":
        names.learn(StackBatch.FromString(message.value()))
    elif message is not None and message.error() is None:
        source = (batch := SampleBatch.FromString(message.value())).source
        partition, message_id = (source.topic, source.partition), (source.offset, source.part)
        if message_id > seen.get(partition, (-1, 0)):  # Kafka is at least once: skips what it delivers again
            seen[partition] = message_id
            for stack, value in zip(batch.sample_stack_id, batch.sample_value, strict=True):
                cpu_ns[stack] += value
    if time.monotonic() > last_print + 2:
        last_print, functions = time.monotonic(), Counter[str]()
        for stack, value in cpu_ns.items():
            functions[names.leaf(stack)] += value
        print(
            "\n" + "\n".join(f"{value / 1e9:9.2f} s  {name}" for name, value in functions.most_common(10)), flush=True
        )
