"""Make the table `stacks` of the lake: the functions of each stack, root first.

  icestream lake stacks --lake s3://bucket/profiles
  icestream lake stacks --lake /var/lib/icestream/lake --since 2026-01-01

SQL needs it to name stacks without a walk up the call tree. Run it as often as you want new stacks and newer names to
be in the table, for example every hour. It replaces the whole table at once: readers see the old one or the new one.
Sinks may write meanwhile.
"""

import argparse
from datetime import date

from deltalake.exceptions import DeltaError

from icestream.cli import CommandError
from sinks.lake.delta import Lake
from sinks.lake.stacks import build_stacks, clean
from sinks.settings import LakeSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", choices=["stacks"], help="the table to make")
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
        count = build_stacks(lake, args.since)
        clean(lake)
    except (LookupError, DeltaError, OSError) as error:
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
