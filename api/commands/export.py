"""Send samples to another store of profiles.

  icestream export otlp --endpoint http://collector:4318 --start now-1h
  icestream export otlp --endpoint http://collector:4318 --selector '{service="checkout"}' --follow
  icestream export otlp --endpoint https://profiles.example.org --header 'Authorization=Bearer TOKEN' --start now-1d

`icestream export otlp --help` says more.
"""

import argparse
import logging
import time
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData

from api.terminal.client import DEFAULT_URL, URL_VARIABLE, Client
from api.terminal.export_slices import Slices
from api.terminal.otlp_sender import OtlpSender, endpoint
from icestream.cli import CommandError
from icestream.progress import progress_display
from icestream.stop import stop_event
from icestream.times import TimeError, format_unix_nano, parse_unix_nano

_OTLP = """Send samples to a receiver of OTLP profiles, such as an OpenTelemetry Collector.

  icestream export otlp --endpoint http://collector:4318 --start now-1h
  icestream export otlp --endpoint http://collector:4318 --follow

Samples are read from the query API, with the names and traces that it knows by now, and sent as OTLP/HTTP (protobuf,
gzip; opentelemetry-proto 1.10) in batches. A receiver that is away or busy gets its batch again. Ctrl-C ends after the
batch at hand, and says with which --start to continue. If the receiver rejects profiles, the exit code is 1.

With --follow, samples are sent when they are --delay old: what comes later than that (from a collector that was cut
off) is not sent. Samples are there for the days that storage keeps them; rollups are not exported.
"""
_STEP_MS = 60_000
_FOLLOW_MS = 10_000

_log = logging.getLogger(__name__)


@dataclass
class _Done:
    samples: int = 0
    until_ms: int = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="FORMAT")
    otlp = kinds.add_parser(
        "otlp",
        help="OTLP profiles over HTTP",
        description=_OTLP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    otlp.add_argument("--endpoint", required=True, metavar="URL", help="receiver; without a path: OTLP's own is added")
    otlp.add_argument("--header", action="append", default=[], metavar="NAME=VALUE", help="header to send; repeatable")
    otlp.add_argument("--selector", default="{}", help="""such as '{service="checkout"}' (default: {})""")
    otlp.add_argument("--profile-type", help="one profile type (default: all that there are)")
    otlp.add_argument("--start", help="RFC 3339, Unix seconds, or now-15m (the default; with --follow: now)")
    otlp.add_argument("--end", help="as --start (default: now); exclusive")
    otlp.add_argument("--follow", action="store_true", help="go on with new samples until told to stop")
    otlp.add_argument("--delay", type=_positive, default=60.0, metavar="S", help="seconds of --follow (default: 60)")
    otlp.add_argument(
        "--max-mb", type=_positive, default=4.0, metavar="MB", help="largest batch, before gzip (default: 4)"
    )
    otlp.add_argument(
        "--give-up", type=_positive, default=600.0, metavar="S", help="seconds to send a batch again (default: 600)"
    )
    otlp.add_argument("--url", help=f"URL of the API (default: {DEFAULT_URL}) [{URL_VARIABLE}]")


def run(args: argparse.Namespace) -> int:
    if args.follow and args.end:
        raise CommandError("give --end or --follow, not both")
    stop = stop_event()
    sender = OtlpSender(endpoint(args.endpoint), dict(map(_header, args.header)), stop, args.give_up)
    start_ms = _time(args.start or ("now" if args.follow else "now-15m"))
    done = _Done(until_ms=start_ms)
    client = Client(args.url)
    try:
        if args.follow:
            while not stop.is_set():
                ready_ms = int((time.time() - args.delay) * 1000) // _FOLLOW_MS * _FOLLOW_MS
                if ready_ms > done.until_ms:
                    _export(args, client, sender, done, ready_ms)
                else:
                    stop.wait(1.0)
        else:
            end_ms = _time(args.end or "now")
            if start_ms >= end_ms:
                raise CommandError("--start is not before --end")
            _export(args, client, sender, done, end_ms)
    finally:
        until = format_unix_nano(done.until_ms * 10**6)
        size = sender.sent_bytes / 1e6
        _log.info("sent %d samples (%.1f MB) until %s; to continue: --start %s", done.samples, size, until, until)
    if sender.rejected:
        raise CommandError(
            f"the receiver rejected {sender.rejected} profiles: {'; '.join(sorted(sender.reasons))[:500]}"
        )
    return 0


def _export(args: argparse.Namespace, client: Client, sender: OtlpSender, done: _Done, end_ms: int) -> None:
    """Sends what there is from `done` to `end_ms`, all profile types of a minute after each other: before `done`,
    all was sent. Raises CommandError."""
    start_ms = done.until_ms
    show = progress_display() if not args.follow else _log_nothing
    types = [args.profile_type] if args.profile_type else _profile_types(client)
    slices = [Slices(client, args.selector, each, int(args.max_mb * 1e6), sender.stop) for each in types]
    while done.until_ms < end_ms:
        until_ms = min(end_ms, (done.until_ms // _STEP_MS + 1) * _STEP_MS)
        for one in slices:
            for part in one.read(done.until_ms, until_ms):
                count = _samples(part.data)
                if count and not sender.send(part.data):
                    return
                done.samples += count
        if sender.stop.is_set():
            return
        done.until_ms = until_ms
        share = (until_ms - start_ms) / (end_ms - start_ms)
        show(share, f"{format_unix_nano(until_ms * 10**6)}, {done.samples:,} samples")


def _samples(data: bytes) -> int:
    resources = ProfilesData.FromString(data).resource_profiles
    scopes = (scope for resource in resources for scope in resource.scope_profiles)
    return sum(len(sample.values) for scope in scopes for profile in scope.profiles for sample in profile.samples)


def _profile_types(client: Client) -> list[str]:
    answer: dict[str, Any] = client.json("/api/v1/profile-types", {})
    return [each["id"] for each in answer["profile_types"]]


def _log_nothing(part: float, text: str) -> None:
    """While it follows, there is no end to come near."""


def _time(text: str) -> int:
    """Unix milliseconds. Raises CommandError."""
    try:
        return parse_unix_nano(text) // 10**6
    except TimeError as error:
        raise CommandError(str(error)) from None


def _header(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name.strip() or not value or not text.isprintable():
        raise CommandError("--header: expected NAME=VALUE")
    return name.strip(), value.strip()


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text!r}")
    return number
