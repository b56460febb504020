"""Runs sinks as threads: for `icestream sink` and for the store process, which runs all of them beside the API."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka import Producer

from icestream.clickhouse.client import Clients, is_embedded
from icestream.kafka import dead_letters
from icestream.kafka.clients import MAY_REPEAT, producer
from icestream.labels.request_labels import RequestLabels
from icestream.messages.plausible import TimeLimits
from icestream.names_api import NamesApi
from icestream.settings import SettingError
from icestream.symbols.symcache import SymCaches
from sinks.archive.archive import ArchiveSink
from sinks.clickhouse.disk_guard import DiskGuard
from sinks.clickhouse.disk_room import room_of
from sinks.clickhouse.sink import ClickHouseSink
from sinks.metrics import MANY_LABEL_SETS
from sinks.requests.thin_requests import thin_for_ever
from sinks.resolve import ResolveSink
from sinks.rollups.builder import Rollups
from sinks.runner.kafka_clock import KafkaClock, Now
from sinks.runner.range_writer import Reject, Rejected
from sinks.runner.runner import Runner
from sinks.settings import SinkSettings
from sinks.sink import Sink

_FLUSH_BYTES = 16_000_000
"""Bytes of the messages that are written at once; the last message of a partition may exceed them."""

log = logging.getLogger(__name__)

Work = Callable[[threading.Event], None]
"""Returns soon after the event was set."""
KINDS = ("clickhouse", "lake", "archive", "resolve")


@dataclass
class Running:
    """Sinks that were started."""

    runners: list[Runner]
    threads: list[threading.Thread]
    failed: dict[str, BaseException]
    """The errors that ended sinks, by the sinks' names."""

    def problem(self) -> str | None:
        """Says which sinks cannot work now, and why; None when all can."""
        problems = [f"{name}: {error}" for name, error in self.failed.items()]
        problems += [
            f"{r.sink.name}: {r.problem}" for r in self.runners if r.problem and r.sink.name not in self.failed
        ]
        return "; ".join(problems) or None

    def join(self, timeout: float | None = None) -> None:
        """Waits until all sinks have ended, soon after `stop` was set. Raises the first error that ended one."""
        for thread in self.threads:
            thread.join(timeout)
        for error in self.failed.values():
            raise error


def start(
    settings: SinkSettings,
    stop: threading.Event,
    clients: Clients | None = None,
    kinds: Sequence[str] | None = None,
) -> Running:
    """Starts sinks of the given kinds, by default all that have a destination. `clients`: default: new ones."""
    clients = clients or Clients(settings.clickhouse)
    clock = KafkaClock()
    if settings.kafka_in_process:  # its messages have the time of this machine
        clock.advance(time.time_ns() // 10**6)
    runners = [_runner(kind, settings, clients, stop, clock) for kind in kinds or _wanted(settings)]
    running = Running(runners, [], {})
    for runner in runners:
        thread = threading.Thread(target=_run, args=(runner, running, stop), name=f"sink {runner.sink.name}")
        running.threads.append(thread)
        thread.start()
    if any(runner.sink.name == "clickhouse" for runner in runners):
        for name, run in beside_clickhouse(settings, clients, clock.now).items():
            running.threads.append(threading.Thread(target=run, args=(stop,), name=name))
            running.threads[-1].start()
    return running


def beside_clickhouse(settings: SinkSettings, clients: Clients, now: Now) -> dict[str, Work]:
    """Returns what runs beside the ClickHouse sink until an event is set, by the names of the threads."""
    beside: dict[str, Work] = {"rollups": Rollups(clients, now=now, room=room_of("rollups", settings)).run}
    if is_embedded(settings.clickhouse):
        beside["disk guard"] = DiskGuard(clients, room_of("clickhouse", settings)).run
    if settings.request_days > 0:
        beside["thinning"] = partial(thin_for_ever, clients, settings.request_days, now, room_of("thinning", settings))
    return beside


def _wanted(settings: SinkSettings) -> list[str]:
    destinations = {"lake": settings.lake, "archive": settings.archive}
    return ["clickhouse", "resolve", *(kind for kind, destination in destinations.items() if destination)]


def _runner(
    kind: str, settings: SinkSettings, clients: Clients, stop: threading.Event, clock: KafkaClock
) -> Runner:  # fmt: skip
    """Raises SettingError where the settings name no destination."""
    flush_s, flush_bytes = settings.flush_s, _FLUSH_BYTES
    limits = TimeLimits.from_settings(settings)
    sets = RequestLabels(settings.request_label_names())
    MANY_LABEL_SETS.read(lambda: sets.emptied, kind)
    sink: Sink
    if kind == "clickhouse":
        sink = ClickHouseSink(clients, limits, sets)
    elif kind == "resolve":
        symcaches = SymCaches(Path(settings.symbol_cache).expanduser(), settings.symbol_store)
        sink = ResolveSink(clients, symcaches, producer(settings, **MAY_REPEAT))
    elif kind == "lake":
        from sinks.lake.sink import LakeSink  # deltalake takes 140 MB of disk, which images without a lake do not have

        destination = _destination(settings.lake, kind)
        names = NamesApi(settings.names_url, settings.kafka)
        sink = LakeSink(destination, None, limits, settings.lake_days, clock.now, names, sets)
        flush_s = settings.lake_flush_s
    else:
        sink = ArchiveSink(_destination(settings.archive, kind), settings.archive_days, limits, clock.now)
        flush_s = settings.lake_flush_s
    if settings.kafka_in_process:
        # The in-process broker keeps 5 MB a partition; its producers wait at 3 MB that the sinks have not committed.
        flush_bytes = 1_000_000
    return Runner(
        sink, settings, _reject(settings, sink.name), stop, flush_s, flush_bytes, clock, room_of(kind, settings)
    )


def _destination(destination: str, kind: str) -> str:
    if not destination:
        raise SettingError(f"the {kind} sink needs --{kind}, or ICESTREAM_{kind.upper()}: where to write")
    return destination


def _reject(settings: SinkSettings, sink: str) -> Reject:
    """Returns a function that sends messages to the dead letters. The first message makes the producer."""
    senders: list[Producer] = []
    rate = dead_letters.Rate(settings.dead_letters_per_minute)

    def reject(letters: Sequence[Rejected]) -> None:
        if not senders:
            senders.append(producer(settings, **MAY_REPEAT))
        dead_letters.send_all(senders[0], rate, f"sinks.{sink}", letters)

    return reject


def _run(runner: Runner, running: Running, stop: threading.Event) -> None:
    try:
        runner.run()
    except BaseException as error:  # no sink ends unnoticed, also not by a panic of a Rust library
        log.exception("sink %s ended", runner.sink.name)
        running.failed[runner.sink.name] = error
