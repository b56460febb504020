"""Profile every CPU of this host and publish the samples to Kafka.

  sudo icestream collect --check                         # what works on this host, and why not
  sudo icestream collect --kafka broker:9092
  sudo icestream collect --frequency 99 --cpu-budget 2   # at most 2 % of all CPUs, with fewer samples if need be
  sudo icestream collect --share 0.1                     # a tenth of the hosts at a time

The collector needs root, or CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH, CAP_SYSLOG and
CAP_CHECKPOINT_RESTORE. It gives up what only loading needs. On Ctrl-C or SIGTERM it sends the last window and ends.
docs/collector.md says what it costs and what happens when something fails.
"""

import argparse
import logging
from typing import TYPE_CHECKING

from collector.settings import CollectorSettings, host_id
from icestream.cli import CommandError
from icestream.http.metrics import HealthServer
from icestream.process.stop import stop_event

if TYPE_CHECKING:
    from collector.agent import Agent

log = logging.getLogger(__name__)


GROUPS = {
    "costs": ("frequency", "cpu_budget", "lowest_frequency", "share", "share_interval"),
    "batches": ("interval", "settle", "spool", "spool_limit_mb", "host_id", "host"),
    "labels": (
        "environment_labels", "relabel", "kubernetes", "kubernetes_url", "kubernetes_node", "kubernetes_token",
        "kubernetes_ca", "kubernetes_verify",
    ),
    "names of functions": ("symbol_store", "debuginfod_urls", "debuginfod_cache", "debuginfod_cache_limit_mb"),
    "in-process broker": ("raw_readers", "activity_readers"),
}  # fmt: skip
"""What `--help` shows together."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--check",
        action="store_true",
        help="print what works on this host, and end: exit code 0 if it can be profiled, else 1",
    )
    parser.add_argument("--json", action="store_true", help="with --check: print JSON")
    CollectorSettings.add_arguments(parser, GROUPS)


def run(args: argparse.Namespace) -> int:
    """Runs until it is told to stop. Raises CommandError where this machine cannot be profiled."""
    settings = CollectorSettings.from_args(args)
    if args.check:
        return _check(settings, args.json)
    if args.json:
        raise CommandError("--json is only for --check: give both, or neither")
    from collector.agent import Agent
    from collector.bpf.sampler import SamplerError
    from collector.delivery.spool import SpoolError

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


def _check(settings: CollectorSettings, with_json: bool) -> int:
    """Prints what works; 0 where profiling would."""
    from collector.checks import report

    rows = []
    for row in report.rows(settings):
        rows.append(row)
        if not with_json:
            print(report.text(row), flush=True)
    print(report.as_json(rows) if with_json else f"\n{report.verdict(rows)}")
    return 0 if report.works(rows) else 1


def _health_server(listen: str, agent: "Agent") -> HealthServer | None:
    try:
        return HealthServer(listen, agent.ready, "collector") if listen else None
    except (OSError, OverflowError, ValueError) as error:
        raise CommandError(f"cannot serve metrics on {listen!r}, expected HOST:PORT: {error}") from error
