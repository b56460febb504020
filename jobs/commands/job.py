"""What `icestream replay` and `icestream backfill` have in common; not a command itself."""

import argparse
import logging
import sys
import time
from typing import Any

from icestream.cli import CommandError
from icestream.times import TimeError, parse_unix_nano
from jobs.replay import JobError, Progress
from jobs.server import Job, submit
from jobs.settings import JobSettings

log = logging.getLogger(__name__)

_BAR = 30
_LOG_S = 10.0


def add_job_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="begin", required=True, metavar="TIME", help="RFC 3339, Unix seconds or now-3h")
    parser.add_argument("--to", dest="end", required=True, metavar="TIME", help="as --from; before that time")
    parser.add_argument(
        "--source", choices=("auto", "kafka", "archive"), default="auto",
        help="where to read from; auto: the archive where it reaches back that far, else Kafka (default: auto)",
    )  # fmt: skip
    JobSettings.add_arguments(parser)


def run_job(kind: str, args: argparse.Namespace, **more: Any) -> int:
    """Runs the job and prints what it did."""
    try:
        now = time.time_ns()
        start, end = parse_unix_nano(args.begin, now), parse_unix_nano(args.end, now)
        job = Job(kind=kind, start=start, end=end, source=args.source, **more)
        lines = submit(job, JobSettings.from_args(args).with_default_folders(), shown_progress())
    except (JobError, TimeError) as error:
        raise CommandError(str(error)) from error
    print("\n".join(lines))
    return 0


def shown_progress() -> Progress:
    """A bar on a terminal, else a line of log now and then."""
    started = last = time.monotonic()

    def bar(part: float, text: str) -> None:
        full = round(_BAR * part)
        left = (time.monotonic() - started) * (1 - part) / part if part else 0.0
        sys.stderr.write(f"\r[{'#' * full}{'.' * (_BAR - full)}] {part:4.0%}  {left:5.0f} s left  {text:40.40}")
        sys.stderr.write("\n" if part >= 1 else "")
        sys.stderr.flush()

    def line(part: float, text: str) -> None:
        nonlocal last
        if part >= 1 or time.monotonic() - last > _LOG_S:
            last = time.monotonic()
            log.info("%3.0f %%: %s", 100 * part, text)

    return bar if sys.stderr.isatty() else line
