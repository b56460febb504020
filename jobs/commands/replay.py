"""Recompute a time range from Kafka or the archive, and restore the rows that the tables lack or have otherwise.

  icestream replay --from 2026-01-31T10:00:00Z --to 2026-01-31T12:00:00Z
  icestream replay --from now-3h --to now-1h --source archive --dry-run

Minutes of hosts whose rows are right stay as they are, traces and operations included. The range must have ended two
minutes ago. If the source lacks stored batches, or a file of the archive is damaged, the replay restores the rest and
ends with exit code 1. If a running `icestream up` or `icestream store` has the embedded ClickHouse open, that process
runs the replay with its own settings, also for its lake; otherwise this command does, for the lake with
--lake.
"""

import argparse

from jobs.commands.job import add_job_arguments, submit_job
from jobs.settings import JobSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_job_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="compare only, and print what would be restored")
    JobSettings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    return submit_job("replay", args)
