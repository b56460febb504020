"""Prints the functions with most CPU, from icestream.flat, without icestream: python examples/flat_top.py HOST:PORT"""

import json
import sys
from collections import Counter

from confluent_kafka import Consumer

consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "flat-top", "auto.offset.reset": "earliest"})
consumer.subscribe(["icestream.flat"])
values = Counter[str]()
while True:
    for message in consumer.consume(500, timeout=2):
        if message.error() is None:
            record = json.loads(message.value())
            if record["profile_type"] == "process_cpu:cpu:nanoseconds:cpu:nanoseconds":
                values[record["functions"][-1]] += record["value"]
    print(*(f"{value / 1e9:9.2f} s  {name}" for name, value in values.most_common(10)), sep="\n", flush=True)
