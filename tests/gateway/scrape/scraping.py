"""A scraper of this process."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import REGISTRY

from gateway.intake import Intake
from gateway.publisher import BatchPublisher
from gateway.scrape.config import load_jobs
from gateway.scrape.scraper import Scraper
from gateway.settings import GatewaySettings


@contextlib.contextmanager
def scraping(settings: GatewaySettings, file: Path, text: str) -> Iterator[None]:
    file.write_text(text)
    publisher = BatchPublisher(settings)
    scraper = Scraper(settings, Intake(settings, publisher), load_jobs(file))
    try:
        yield
    finally:
        scraper.close()
        publisher.close()


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"icestream_gateway_{name}", labels) or 0
