"""Make or update the tables in ClickHouse.

  icestream migrate --clickhouse http://default@127.0.0.1:8123/default
  icestream migrate --clickhouse chdb:///var/lib/icestream/clickhouse --retention-days 30
  icestream migrate --clickhouse http://default@clickhouse:8123/icestream --cluster main

Runs each file of the schema that has not run yet, once, and sets how long rows are kept. Running it again with the same
settings changes nothing. Give the settings of rollups (--rollup-...) each time: what is not given gets its default.
"""

import argparse

from clickhouse_connect.driver.exceptions import Error

from icestream.cli import CommandError
from icestream.clickhouse.client import connect
from icestream.files.free_space import DiskFullError
from sinks.clickhouse.migrate import MigrationError, are_new, migrate, shown
from sinks.clickhouse.retention import remember_inserts, set_retention
from sinks.settings import SinkSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    SinkSettings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    settings = SinkSettings.from_args(args)
    try:
        client = connect(settings.clickhouse)
        done = migrate(client, cluster=settings.cluster)
        changed = set_retention(client, settings.retention_days, settings.rollup_days, new=are_new(done))
        if settings.insert_tokens is not None:
            remember_inserts(client, settings.insert_tokens)
    except (MigrationError, DiskFullError) as error:
        raise CommandError(str(error)) from error
    except Error as error:
        raise CommandError(f"{shown(settings.clickhouse)}: {error}") from error
    for name in done:
        print(f"applied {name}")
    if changed and not done:
        print(f"changed how long rows are kept in {', '.join(changed)}")
    if not done and not changed:
        print("the tables are up to date")
    return 0
