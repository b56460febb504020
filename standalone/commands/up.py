"""Run everything on this machine: collector, gateway, stream processors, storage, API and page.

  sudo icestream up
  icestream up --data ./data --no-collector
  sudo icestream up --kafka broker:9092 --clickhouse http://default@clickhouse:8123/default

Without --kafka it starts a broker: Apache Kafka if `icestream kafka --fetch` has fetched it, else the in-process
broker, which loses messages that are not stored yet when it ends. Without --clickhouse it keeps everything in --data
for the next start. It makes missing topics and updates the tables. Only the collector needs root; the other parts run
as the user --user.
Ctrl-C and SIGTERM end it within 10 seconds, or within 50 if profiles of the gateway wait for a Kafka that is away.
"""

import argparse
import logging

from icestream.cli import CommandError
from icestream.process.stop import stop_event
from standalone.settings import UpSettings
from standalone.supervisor.local_pipeline import LocalPipeline, StartError
from standalone.supervisor.supervisor import PartFailed, PartLost

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    UpSettings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    stop = stop_event()
    settings = UpSettings.from_args(args)
    try:
        while not stop.is_set():
            try:
                with LocalPipeline(settings) as pipeline:
                    pipeline.run(stop)
            except PartLost as error:
                log.error("%s: what was not stored is lost; starting everything again", error)
    except (StartError, PartFailed) as error:
        raise CommandError(str(error)) from error
    return 0
