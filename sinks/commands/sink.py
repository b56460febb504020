"""Store what the topics carry: run one sink, or several, until told to stop.

  icestream sink clickhouse --clickhouse http://default@127.0.0.1:8123/default
  icestream sink lake --lake s3://bucket/profiles
  icestream sink archive --archive /var/lib/icestream/archive
  icestream sink clickhouse resolve

clickhouse stores samples, stacks and activity in tables, and builds rollups. resolve names stored locations whose
symbols come late. lake stores the same tables as files (Delta tables). archive keeps raw and activity messages as they
came, for replays. Several processes of one kind share the partitions. A process of which a sink cannot go on ends with
exit code 1 and loses nothing; have systemd or the like start it again.
"""

import argparse

from icestream.cli import CommandError
from icestream.http.metrics import HealthServer
from icestream.process.stop import stop_event
from sinks.clickhouse.migrate import MigrationError
from sinks.service import KINDS, start
from sinks.settings import SinkSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kinds", nargs="+", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    SinkSettings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    settings = SinkSettings.from_args(args)
    stop = stop_event()
    running = start(settings, stop, kinds=args.kinds)
    listen = settings.metrics_listen
    health = HealthServer(listen, running.problem, "sinks") if listen else None
    try:
        while not stop.wait(0.2):
            if running.failed:
                stop.set()
        running.join()
    except MigrationError as error:
        raise CommandError(str(error)) from error
    finally:
        if health is not None:
            health.close()
    return 0
