"""Publish samples with the names of their functions on icestream.flat, as JSON or Avro.

  icestream flatten --kafka kafka-1:9092 --interval 10
  icestream flatten --kafka kafka-1:9092 --format avro --schema-id 7

One record for each series, operation, stack and interval, for consumers that know nothing of icestream. Add up their
values: a record of negative value corrects samples whose operation became known later. Any number of processes share
the partitions of icestream.samples. A process that cannot go on ends with exit code 1 and loses nothing; have systemd
or the like start it again.

/metrics, /healthz and /readyz are on port 4065 (--metrics-listen): give each process of a machine its own.

The schema of Avro is schemas/flat.avsc. If readers look schemas up in a schema registry, as ksqlDB, Kafka Connect and
Flink's avro-confluent do, register it there as icestream.flat-value, and give the ID that the registry answers with.
"""

import argparse

from confluent_kafka import KafkaException

from icestream.cli import CommandError
from icestream.process.stop import stop_event
from streams.flatten.flattener import flatten
from streams.flatten.record import Encode, as_json
from streams.settings import FlattenSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--interval", type=_interval_ms, default="10", metavar="SECONDS", help="what a record sums up (default: 10)"
    )
    parser.add_argument("--format", choices=("json", "avro"), default="json", help="of the records (default: json)")
    parser.add_argument(
        "--schema-id", type=_schema_id, metavar="ID", help="with avro: ID of the schema in your schema registry, if any"
    )
    FlattenSettings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    settings = FlattenSettings.from_args(args)
    if args.schema_id is not None and args.format != "avro":
        raise CommandError("--schema-id is for --format avro: JSON needs no schema")
    encode: Encode = as_json
    if args.format == "avro":
        from streams.flatten.avro import avro_encoder

        encode = avro_encoder(args.schema_id)
    try:
        flatten(settings, args.interval, stop_event(), encode)
    except KafkaException as error:
        raise CommandError(f"Kafka at {settings.kafka}: {error.args[0].str()}") from None
    except OSError as error:  # the address of /metrics is taken
        raise CommandError(f"cannot listen on {settings.metrics_listen}: {error}") from None
    return 0


def _interval_ms(text: str) -> int:
    try:
        interval_ms = round(float(text) * 1000)
    except (ValueError, OverflowError):
        interval_ms = 0
    if not 100 <= interval_ms <= 86_400_000:
        raise argparse.ArgumentTypeError(f"expected 0.1 to 86400 seconds, got {text!r}")
    return interval_ms


def _schema_id(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text!r}")
    return int(text)
