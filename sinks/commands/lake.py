"""Work on the lake: make its table `stacks`, or fill in names that it lacks.

  icestream lake stacks --lake s3://bucket/profiles
  icestream lake stacks --lake /var/lib/icestream/lake --since 2026-01-01
  icestream lake fill-names --lake /var/lib/icestream/lake --names-url http://127.0.0.1:4060

stacks makes the table with the functions of each stack, root first. SQL needs it to name stacks without a walk up the
call tree. Run it as often as you want new stacks and newer names to be in the table, for example every hour. It
replaces the whole table at once: readers see the old one or the new one.

fill-names asks the API for the names that the lake lacks, because its sink began after Kafka had deleted them. A
running sink does so by itself for what it writes.

Sinks may write meanwhile.
"""

import argparse
from datetime import date

from deltalake.exceptions import DeltaError

from icestream.cli import CommandError
from icestream.names_api import NamesApi, NoNamesError
from sinks.lake.delta import Lake
from sinks.lake.late_names import fill_names
from sinks.lake.stacks import build_stacks, clean
from sinks.settings import LakeSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", choices=["stacks", "fill-names"], help="make the table stacks, or fill in names")
    parser.add_argument(
        "--since", type=_day, metavar="DATE", help="only stacks of samples from this day on (default: all)"
    )
    LakeSettings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    settings = LakeSettings.from_args(args)
    if not settings.lake:
        raise CommandError("say where the lake is: --lake DIR")
    lake = Lake(settings.lake)
    try:
        if args.task == "fill-names":
            done = fill_names(lake, NamesApi(settings.names_url), args.since)
            print(f"{done.stacks} stacks, {done.lacking} of them lacked names, {done.filled} of these have got them")
            return 0
        count = build_stacks(lake, args.since)
        clean(lake)
    except (LookupError, DeltaError, OSError, NoNamesError) as error:
        raise CommandError(str(error)) from error
    print(f"{count} stacks")
    return 0


def _day(text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if day.year < 1970:
        raise argparse.ArgumentTypeError(f"expected a day such as 2026-01-31, got {text!r}")
    return day
