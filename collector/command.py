"""The agent on a host: profiles every CPU and publishes what it saw to Kafka.

    sudo icestream collect --kafka broker:9092
    sudo icestream collect --frequency 99 --interval 1 --symbol-store s3://profiles/symbols

Needs root, or CAP_BPF, CAP_PERFMON, CAP_SYSLOG, CAP_SYS_PTRACE, CAP_SYS_ADMIN and CAP_DAC_READ_SEARCH. Ctrl-C and
SIGTERM send the last window and end it.
"""

import argparse
import logging

from collector.agent import Agent
from collector.sampler import SamplerError
from collector.settings import CollectorSettings, host_id
from collector.spool import SpoolError
from icestream.cli import CommandError
from icestream.metrics import HealthServer
from icestream.stop import stop_event

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    CollectorSettings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Until it is told to stop. Raises CommandError where this machine cannot be profiled."""
    settings = CollectorSettings.from_args(args)
    stop = stop_event()
    try:
        agent = Agent(settings)
    except (SamplerError, SpoolError, OSError) as error:
        raise CommandError(str(error)) from error
    server = _health_server(settings.metrics_listen, agent)
    log.info(
        "profiling host %s at %d Hz, a batch every %g s to %s",
        host_id(settings), settings.frequency, settings.interval, settings.kafka,
    )  # fmt: skip
    agent.run(stop)
    if server is not None:
        server.close()
    return 0


def _health_server(listen: str, agent: Agent) -> HealthServer | None:
    try:
        return HealthServer(listen, agent.ready) if listen else None
    except (OSError, OverflowError, ValueError) as error:
        raise CommandError(f"cannot serve metrics on {listen!r}, expected HOST:PORT: {error}") from error
