"""Send samples to another store of profiles.

  icestream export otlp --endpoint http://collector:4318 --start now-1h
  icestream export otlp --endpoint http://collector:4318 --selector '{service="checkout"}' --follow
  icestream export otlp --endpoint https://profiles.example.org --header 'Authorization=Bearer TOKEN' --start now-1d

`icestream export otlp --help` says more.
"""

import argparse
import itertools
import logging
import re
import time
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData

from api.terminal.client import DEFAULT_URL, URL_VARIABLE, Client
from api.terminal.export_slices import STEP_MS, Slices
from api.terminal.otlp_sender import OtlpSender, endpoint
from api.terminal.patient_client import PatientClient, Stopped
from icestream.cli import CommandError
from icestream.process.progress import Progress, progress_display
from icestream.process.stop import stop_event
from icestream.times import TimeError, format_unix_nano, parse_unix_nano

_OTLP = """Send samples to a receiver of OTLP profiles, such as an OpenTelemetry Collector.

  icestream export otlp --endpoint http://collector:4318 --start now-1h
  icestream export otlp --endpoint http://collector:4318 --follow

It reads samples from the query API, with the names and traces that the API knows by now, and sends them in batches as
OTLP/HTTP (protobuf, gzip; opentelemetry-proto 1.10). If the receiver is away or busy, it sends the batch again. After
Ctrl-C it finishes the current minute if that goes quickly, and says with which --start to continue. If the receiver
rejects profiles, the exit code is 1.

It sends whole minutes, from the minute of --start to that of --end, once they are --delay old. It does not send samples
that are stored later than that (of a collector that was cut off). Only samples that are still stored can be exported;
rollups are not.
"""
_LOG_S = 50.0
"""With --follow, there is a minute to send every minute, so this logs each of them."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_log = logging.getLogger(__name__)


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
    otlp.add_argument(
        "--delay",
        type=_positive,
        default=60.0,
        metavar="S",
        help="age of a minute before it is sent, in seconds (default: 60)",
    )
    otlp.add_argument(
        "--max-mb", type=_positive, default=4.0, metavar="MB", help="largest batch, before gzip (default: 4)"
    )
    otlp.add_argument(
        "--give-up",
        type=_positive,
        default=600.0,
        metavar="S",
        help="seconds after which it gives up a batch or a query that fails (default: 600)",
    )
    otlp.add_argument("--url", help=f"URL of the API (default: {DEFAULT_URL}) [{URL_VARIABLE}]")


def run(args: argparse.Namespace) -> int:
    if args.follow and args.end:
        raise CommandError("give --end or --follow, not both")
    start_unix_milli = _time(args.start or ("now" if args.follow else "now-15m"))
    end_unix_milli = None if args.follow else _time(args.end or "now")
    if end_unix_milli is not None and start_unix_milli >= end_unix_milli:
        raise CommandError("--start is not before --end")
    stop = stop_event()
    sender = OtlpSender(endpoint(args.endpoint), dict(map(_header, args.header)), stop, args.give_up)
    client = PatientClient(args.url, stop, args.give_up)
    show = _log_position() if args.follow else progress_display()
    export = _Export(args, client, sender, show, start_unix_milli // STEP_MS * STEP_MS)
    try:
        if end_unix_milli is None:
            export.follow()
        else:
            export.send(min(-(-end_unix_milli // STEP_MS) * STEP_MS, _ready_unix_milli(args.delay)))
    except Stopped:
        pass
    finally:
        until, size = _text(export.until_unix_milli), sender.sent_bytes / 1e6
        _log.info("sent %d samples (%.1f MB) until %s; to continue: --start %s", export.samples, size, until, until)
    if sender.rejected:
        raise CommandError(
            f"the receiver rejected {sender.rejected} profiles: {'; '.join(sorted(sender.reasons))[:500]}"
        )
    return 0


@dataclass
class _Export:
    args: argparse.Namespace
    client: Client
    sender: OtlpSender
    show: Progress
    until_unix_milli: int
    """A whole minute, Unix time. Everything before it is sent."""
    samples: int = 0

    def follow(self) -> None:
        """Sends every minute when it is old enough. Raises CommandError and Stopped."""
        while not self.sender.stop.is_set():
            ready_unix_milli = _ready_unix_milli(self.args.delay)
            if ready_unix_milli > self.until_unix_milli:
                self.send(ready_unix_milli)
            else:
                self.sender.stop.wait(1.0)

    def send(self, end_unix_milli: int) -> None:
        """Sends the minutes before a moment, all profile types of a minute after each other. Raises CommandError, and
        Stopped within a minute."""
        start_unix_milli = self.until_unix_milli
        types = [self.args.profile_type] if self.args.profile_type else _profile_types(self.client)
        most_bytes = max(1, int(self.args.max_mb * 1e6))
        slices = [Slices(self.client, self.args.selector, each, most_bytes) for each in types]
        while self.until_unix_milli < end_unix_milli and not self.sender.stop.is_set():
            for data in itertools.chain.from_iterable(one.read_minute(self.until_unix_milli) for one in slices):
                count = _samples(data)
                if count and not self.sender.send(data):
                    raise Stopped
                self.samples += count
            self.until_unix_milli += STEP_MS
            share = (self.until_unix_milli - start_unix_milli) / (end_unix_milli - start_unix_milli)
            self.show(share, f"{_text(self.until_unix_milli)}, {self.samples:,} samples")


def _ready_unix_milli(delay_s: float) -> int:
    """Returns when the last minute that is old enough ended."""
    return int((time.time() - delay_s) * 1000) // STEP_MS * STEP_MS


def _samples(data: bytes) -> int:
    resources = ProfilesData.FromString(data).resource_profiles
    scopes = (scope for resource in resources for scope in resource.scope_profiles)
    return sum(len(sample.values) for scope in scopes for profile in scope.profiles for sample in profile.samples)


def _profile_types(client: Client) -> list[str]:
    answer: dict[str, Any] = client.json("/api/v1/profile-types", {})
    return [each["id"] for each in answer["profile_types"]]


def _log_position() -> Progress:
    """Returns a function that logs every minute what is sent, so that a killed process has logged how far it got."""
    last = 0.0

    def log(share: float, text: str) -> None:
        nonlocal last
        if not last or time.monotonic() - last > _LOG_S:
            last = time.monotonic()
            _log.info("sent until %s", text)

    return log


def _time(text: str) -> int:
    """Unix milliseconds. Raises CommandError."""
    try:
        return parse_unix_nano(text) // 10**6
    except TimeError as error:
        raise CommandError(str(error)) from None


def _text(unix_milli: int) -> str:
    return format_unix_nano(unix_milli * 10**6)


def _header(text: str) -> tuple[str, str]:
    name, _, value = (part.strip() for part in text.partition("="))
    if not _HEADER_NAME.fullmatch(name) or not value or not (value.isascii() and value.isprintable()):
        raise CommandError("--header: expected NAME=VALUE, in ASCII")
    return name, value


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text!r}")
    return number
