"""Run only a local Apache Kafka, or fetch it: `icestream up` then uses it as its broker.

  icestream kafka --fetch                # with Maven, into the folder of this Python environment
  icestream kafka ./kafka --port 9092    # until Ctrl-C; keeps its messages in ./kafka

It needs Java 17. Clients need the variables in clients.env of that folder, with the password. Make the topics with
`icestream topics create`.
"""

import argparse
import logging
from pathlib import Path

from icestream.cli import CommandError
from icestream.process.stop import stop_event
from standalone.supervisor.local_kafka import KafkaUnavailable, LocalKafka, fetch

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("folder", nargs="?", type=Path, help="keep messages in this folder", metavar="FOLDER")
    what.add_argument("--fetch", action="store_true", help="fetch the jars with Maven, 43 MB, and end")
    parser.add_argument("--port", type=int, default=9092, help="listen on this port, or a free one if it is taken")


def run(args: argparse.Namespace) -> int:
    try:
        if args.fetch:
            print(f"Apache Kafka is in {fetch()}")
            return 0
        return _run(args.folder, args.port)
    except (KafkaUnavailable, OSError) as error:
        raise CommandError(str(error)) from error


def _run(data: Path, port: int) -> int:
    stop = stop_event()
    kafka = LocalKafka(data, port, login=True)
    kafka.start()
    log.info("Apache Kafka at %s; settings of clients in %s; Ctrl-C ends it", kafka.address, kafka.clients)
    while not stop.wait(0.5):
        if kafka.process is None or kafka.process.poll() is not None:
            raise CommandError("Kafka ended unexpectedly")
    kafka.close()
    return 0
