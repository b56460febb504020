"""The arguments that `icestream replay` and `icestream backfill` share, and how they run; not a command itself."""

import argparse
import time
from typing import Any

from icestream.cli import CommandError
from icestream.times import TimeError, parse_unix_nano
from jobs.job import Job, JobError
from jobs.progress import progress_display
from jobs.settings import JobSettings
from jobs.submit import submit


def add_job_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from", dest="start", required=True, metavar="TIME",
        help="start of the time range: RFC 3339, Unix seconds, or relative as now-3h",
    )  # fmt: skip
    parser.add_argument(
        "--to", dest="end", required=True, metavar="TIME",
        help="end of the time range, not included; written as --from",
    )  # fmt: skip
    parser.add_argument(
        "--source", choices=("auto", "kafka", "archive"), default="auto",
        help="where to read messages from; auto: the archive if it goes back to --from, else Kafka (default: auto)",
    )  # fmt: skip


def submit_job(kind: str, args: argparse.Namespace, **options: Any) -> int:
    """Submits a job of this kind with these fields of `Job`, and prints what it did."""
    try:
        now = time.time_ns()
        job = Job(
            kind=kind,
            start_unix_nano=parse_unix_nano(args.start, now),
            end_unix_nano=parse_unix_nano(args.end, now),
            source=args.source,
            **options,
        )
        lines = submit(job, JobSettings.from_args(args).with_default_folders(), progress_display())
    except (JobError, TimeError) as error:
        raise CommandError(str(error)) from error
    print("\n".join(lines))
    return 0
