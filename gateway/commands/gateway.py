"""Take in profiles and spans of other tools over HTTP and gRPC, and publish them to Kafka.

  icestream gateway --gateway-listen 0.0.0.0:4040
  curl --data-binary @cpu.pb.gz 'http://127.0.0.1:4040/api/v1/ingest/pprof?service=checkout'
  icestream gateway --gateway-scrape /etc/icestream/scrape.yaml

A profile is acknowledged when Kafka has it. Any number of gateways may run. Give a file of scrape jobs to one of them
only, or to `icestream scrape`, which does nothing else. docs/gateway.md lists the formats and routes.
"""

import argparse
import contextlib
from pathlib import Path

from gateway.grpc_server import GrpcServer
from gateway.http.app import create_app
from gateway.intake import Intake
from gateway.otlp_topic import profiles_topic, spans_topic
from gateway.publisher import BatchPublisher
from gateway.scrape.config import load_jobs
from gateway.settings import GatewaySettings
from gateway.tls import tls_of
from icestream.cli import CommandError
from icestream.http.server import ServerError, serve
from icestream.process.stop import stop_event


def add_arguments(parser: argparse.ArgumentParser) -> None:
    GatewaySettings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    settings = GatewaySettings.from_args(args)
    jobs = load_jobs(Path(settings.gateway_scrape)) if settings.gateway_scrape else ()
    tls = tls_of(settings)
    stop = stop_event()
    publisher = BatchPublisher(settings)
    intake = Intake(settings, publisher)
    try:
        with contextlib.ExitStack() as serving:
            if settings.gateway_grpc_listen:
                serving.callback(GrpcServer(settings, publisher, intake, tls).close)
            if settings.gateway_spans_topic:
                serving.callback(spans_topic(settings, intake).close)
            if settings.gateway_profiles_topic:
                serving.callback(profiles_topic(settings, intake).close)
            if jobs:
                # Only here: it takes aiohttp, without which a gateway starts a sixth sooner.
                from gateway.scrape.scraper import Scraper

                serving.callback(Scraper(settings, intake, jobs).close)
            app, context = create_app(settings, publisher, intake), tls.http_context() if tls else None
            serve(app, settings.gateway_listen, stop, "the gateway", context)
    except ServerError as error:
        raise CommandError(str(error)) from error
    finally:
        publisher.close()
    return 0
