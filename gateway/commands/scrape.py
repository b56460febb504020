"""Ask programs for their profiles over HTTP, again and again, as Prometheus asks for metrics.

  icestream scrape --config /etc/icestream/scrape.yaml
  icestream scrape --config scrape.yaml --kafka kafka-1:9092

The file has the shape of Prometheus's scrape_configs, with the profiles as Parca writes them (docs/gateway.md). Run one
process for a file: each process with the file asks all of its targets. `icestream up` and `icestream gateway` scrape as
well, with --gateway-scrape FILE.

/metrics, /healthz and /readyz are on port 4066 (--metrics-listen): give each process of a machine its own.
"""

import argparse
import contextlib
from pathlib import Path

from gateway.intake import Intake
from gateway.publisher import BatchPublisher
from gateway.scrape.config import load_jobs
from gateway.scrape.scraper import Scraper
from gateway.settings import ScrapeSettings
from icestream.cli import CommandError
from icestream.http.metrics import HealthServer
from icestream.process.stop import stop_event


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", required=True, type=Path, metavar="FILE", help="YAML file of scrape jobs")
    ScrapeSettings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    settings = ScrapeSettings.from_args(args)
    jobs = load_jobs(args.config)
    stop = stop_event()
    with contextlib.ExitStack() as running:
        publisher = BatchPublisher(settings)
        running.callback(publisher.close)
        if settings.metrics_listen:
            try:
                health = HealthServer(settings.metrics_listen, publisher.ready, "gateway")
            except (OSError, ValueError, OverflowError) as error:
                raise CommandError(f"cannot listen on --metrics-listen {settings.metrics_listen}: {error}") from None
            running.callback(health.close)
        running.callback(Scraper(settings, Intake(settings, publisher), jobs).close)
        stop.wait()
    return 0
