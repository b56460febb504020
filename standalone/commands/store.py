"""Run the sinks and the query API in one process, as `icestream up` does.

  icestream store --kafka 127.0.0.1:9092 --data /var/lib/icestream
  icestream store --kafka 127.0.0.1:9092 --clickhouse http://default@127.0.0.1:8123/default

Creates or updates the tables, stores what arrives from Kafka, and answers queries on --listen. /metrics there has the
metrics of the sinks and of the API.
"""

import argparse

from icestream.cli import CommandError
from icestream.http.server import ServerError
from icestream.process.stop import stop_event
from sinks.clickhouse.migrate import MigrationError
from standalone.settings import StoreSettings
from standalone.store import StoreError, run_store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    StoreSettings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    stop = stop_event()
    try:
        run_store(StoreSettings.from_args(args).with_default_folders(), stop)
    except (StoreError, ServerError, MigrationError) as error:
        raise CommandError(str(error)) from error
    return 0
