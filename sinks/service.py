"""Runs sinks as threads: for `icestream sink` and for the store process, which runs all of them beside the API."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import Message, Producer

from icestream import dead_letters
from icestream.clickhouse import Clients
from icestream.kafka import producer
from sinks.clickhouse import ClickHouseSink
from sinks.runner import Runner, Sink
from sinks.settings import SinkSettings

_FLUSH_S = 30.0

log = logging.getLogger(__name__)

KINDS = ("clickhouse",)


@dataclass
class Running:
    """Sinks at work."""

    runners: list[Runner]
    threads: list[threading.Thread]
    failed: dict[str, Exception]
    """Sinks that ended by an error, by name."""

    def problem(self) -> str | None:
        """Why not everything can do its work now, in words; None when all can."""
        problems = [f"{name}: {error}" for name, error in self.failed.items()]
        problems += [
            f"{r.sink.name}: {r.problem}" for r in self.runners if r.problem and r.sink.name not in self.failed
        ]
        return "; ".join(problems) or None

    def join(self, timeout: float | None = None) -> None:
        """Waits for all to end; they do soon after `stop` was set. Raises the first error that ended one."""
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
    """Starts sinks: `kinds`, or all that the settings give a place to write to. `clients`: those of this process."""
    clients = clients or Clients(settings.clickhouse)
    runners = [_runner(kind, settings, clients, stop) for kind in kinds or _wanted(settings)]
    running = Running(runners, [], {})
    for runner in runners:
        thread = threading.Thread(target=_run, args=(runner, running, stop), name=f"sink {runner.sink.name}")
        running.threads.append(thread)
        thread.start()
    return running


def _wanted(settings: SinkSettings) -> list[str]:
    return ["clickhouse"]


def _runner(kind: str, settings: SinkSettings, clients: Clients, stop: threading.Event) -> Runner:
    sink: Sink = ClickHouseSink(clients)
    return Runner(sink, settings, _reject(settings, sink.name), stop, settings.flush_s)


def _reject(settings: SinkSettings, sink: str) -> Callable[[Message, Exception], None]:
    """Sends messages to the dead letters; the producer is made for the first."""
    senders: list[Producer] = []

    def reject(message: Message, error: Exception) -> None:
        if not senders:
            senders.append(producer(settings))
        dead_letters.send(senders[0], message, f"sink {sink}", error)
        senders[0].flush(_FLUSH_S)

    return reject


def _run(runner: Runner, running: Running, stop: threading.Event) -> None:
    try:
        runner.run()
    except Exception as error:
        log.exception("sink %s ended", runner.sink.name)
        running.failed[runner.sink.name] = error
