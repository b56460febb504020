"""Recompute a time range from Kafka or the archive, and replace the rows of what was recomputed.

  icestream backfill --from 2026-01-01T00:00:00Z --to 2026-01-08T00:00:00Z
  icestream backfill --from now-1d --to now-1h --operators mymodule:OPERATORS

Use it for a range that was processed wrongly, or to process a range with your own operators (an instance of
`streams.partition.process.Operators`). If a backfill was stopped or killed, start it again with the same arguments: it
continues after the last ten minutes that it finished. It ends with an error if stored batches of the range are missing
in the source; --allow-missing leaves their rows as they are. If a file of the archive is damaged, it leaves the rows of
that file as they are, does the rest, and ends with exit code 1. With --lake, it corrects the lake, too.
"""

import argparse

from jobs.commands.job import add_job_arguments, submit_job
from jobs.settings import JobSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_job_arguments(parser)
    parser.add_argument(
        "--allow-missing", action="store_true", help="leave stored rows as they are if the source lacks their batches"
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be read and replaced, write nothing")
    parser.add_argument(
        "--operators", default="", metavar="MODULE:NAME", help="operators to recompute with (default: the live ones)"
    )
    JobSettings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    return submit_job("backfill", args, allow_missing=args.allow_missing, operators=args.operators)
