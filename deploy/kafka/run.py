"""Runs only the local Apache Kafka, until Ctrl-C.

After `make kafka`, run `.venv/bin/python deploy/kafka/run.py [FOLDER] [PORT]`. It keeps its messages in FOLDER
(default: data/kafka). Clients need the variables in FOLDER/clients.env, with the password. Make the topics with
`icestream topics create`.
"""

import sys
from pathlib import Path

from icestream.process.stop import stop_event
from standalone.supervisor.local_kafka import KafkaUnavailable, LocalKafka


def main(data: str = "data/kafka", port: str = "9092") -> int:
    stop = stop_event()
    try:
        kafka = LocalKafka(Path(data), int(port), login=True)
        kafka.start()
    except KafkaUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    print(
        f"Apache Kafka at {kafka.address}, data in {data}, settings of clients in {kafka.clients}; Ctrl-C ends it",
        flush=True,
    )
    while not stop.wait(0.5):
        if kafka.process is None or kafka.process.poll() is not None:
            print("Kafka ended unexpectedly", file=sys.stderr)
            return 1
    kafka.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
