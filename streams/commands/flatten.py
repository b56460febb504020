"""Publish samples with the names of their functions on icestream.flat, as JSON.

  icestream flatten --kafka kafka-1:9092 --interval 10

One record for each series, stack and interval, for consumers that know nothing of icestream. Any number of processes
share the partitions of icestream.samples. A process that cannot go on ends with exit code 1 and loses nothing; have
systemd or the like start it again.
"""

import argparse

from confluent_kafka import KafkaException

from icestream.cli import CommandError
from icestream.settings import KafkaSettings
from icestream.stop import stop_event
from streams.flatten.flattener import flatten


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--interval", type=_interval_ms, default="10", metavar="SECONDS", help="what a record sums up (default: 10)"
    )
    KafkaSettings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    settings = KafkaSettings.from_args(args)
    try:
        flatten(settings, args.interval, stop_event())
    except KafkaException as error:
        raise CommandError(f"Kafka at {settings.kafka}: {error.args[0].str()}") from None
    return 0


def _interval_ms(text: str) -> int:
    try:
        interval_ms = round(float(text) * 1000)
    except (ValueError, OverflowError):
        interval_ms = 0
    if not 100 <= interval_ms <= 86_400_000:
        raise argparse.ArgumentTypeError(f"expected 0.1 to 86400 seconds, got {text!r}")
    return interval_ms
