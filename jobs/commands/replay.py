"""Put back what is absent from a time range, from Kafka or from the archive.

  icestream replay --from 2026-01-31T10:00:00Z --to 2026-01-31T12:00:00Z
  icestream replay --from now-3h --to now-1h --source archive --dry-run

What is there and complete stays as it is. With the embedded database the running `icestream up` does the work; without
one it is done here.
"""

import argparse

from jobs.commands.job import add_job_arguments, run_job


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_job_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be restored")


def run(args: argparse.Namespace) -> int:
    return run_job("replay", args, dry_run=args.dry_run)
