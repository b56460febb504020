"""The arguments that `icestream replay` and `icestream backfill` share, and how they run; not a command itself."""

import argparse
import signal
import sys
import time
from typing import Any

from icestream.cli import CommandError
from icestream.process.progress import progress_display
from icestream.times import TimeError, format_unix_nano, parse_unix_nano
from jobs.job import Job, JobError
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
    parser.add_argument(
        "--name", default="", help="name of the job, by which it continues after it was stopped (default: by its range)"
    )
    parser.add_argument(
        "--restart", action="store_true", help="start from the beginning, not where a job of this name was stopped"
    )
    parser.add_argument(
        "--jobs", dest="processes", type=int, default=1, metavar="N", help="processes that recompute (default: 1)"
    )


def submit_job(kind: str, args: argparse.Namespace, **options: Any) -> int:
    """Submits a job of this kind with these fields of `Job`, and prints what it did."""
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
    try:
        now = time.time_ns() // 10**6 * 10**6  # so that the times which are printed are exact
        job = Job(
            kind=kind,
            start_unix_nano=parse_unix_nano(args.start, now),
            end_unix_nano=parse_unix_nano(args.end, now),
            source=args.source,
            dry_run=args.dry_run,
            name=args.name,
            restart=args.restart,
            processes=args.processes,
            **options,
        )
        again = f"--from {format_unix_nano(job.start_unix_nano)} --to {format_unix_nano(job.end_unix_nano)}"
        if "now" in args.start + args.end:  # later, these would name another job
            print(f"{kind} {again}: to continue it if it ends early, give these times", file=sys.stderr)
        settings = JobSettings.from_args(args).with_default_folders()
        outcome = submit(job, settings, progress_display(), JobSettings.flags(args))
    except (JobError, TimeError) as error:
        raise CommandError(str(error)) from error
    except KeyboardInterrupt:
        print(
            f"\nthe {kind} was stopped: to continue, start it again with {again} and otherwise the same arguments",
            file=sys.stderr,
        )
        return 128 + signal.SIGINT
    print("\n".join(outcome.lines))
    if not outcome.is_complete:
        raise CommandError("the source lacks data of this range, as said above: all the rest is done")
    return 0
