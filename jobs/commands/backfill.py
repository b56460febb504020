"""Recompute a time range as a whole, and put it in the place of what is stored.

  icestream backfill --from 2026-01-01T00:00:00Z --to 2026-01-08T00:00:00Z
  icestream backfill --from now-1d --to now-1h --operators mymodule:OPERATORS

For a range that was processed wrongly, or with operators of one's own (a `streams.process.Operators`). One that was
killed goes on when it is started again. It refuses where the source lacks batches that are stored.
"""

import argparse

from jobs.commands.job import add_job_arguments, run_job


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_job_arguments(parser)
    parser.add_argument(
        "--allow-missing", action="store_true", help="lose stored rows that the source cannot give again"
    )
    parser.add_argument("--operators", default="", metavar="MODULE:NAME", help="operators to recompute with")


def run(args: argparse.Namespace) -> int:
    return run_job("backfill", args, allow_missing=args.allow_missing, operators=args.operators)
