"""Serve the query API and the web page.

  icestream api --clickhouse http://127.0.0.1:8123/icestream
  icestream api --clickhouse chdb:///var/lib/icestream/clickhouse --listen 127.0.0.1:4060

One process at a time can open a chdb:// directory. If `icestream up` runs, its store process serves the API already.
There is no authentication: put a proxy that has it in front of any address but the loopback.
"""

import argparse

from api.http.app import create_app
from api.settings import ApiSettings
from api.warm_up import MOST_WARM_UP_S, start_warming_up
from icestream.cli import CommandError
from icestream.clickhouse.client import Clients, is_embedded
from icestream.http.server import ServerError, serve
from icestream.process.stop import stop_event


def add_arguments(parser: argparse.ArgumentParser) -> None:
    ApiSettings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    settings = ApiSettings.from_args(args)
    stop = stop_event()
    app = create_app(settings, Clients(settings.clickhouse))
    warming_up = start_warming_up(app.state.shared)
    try:
        serve(app, settings.listen, stop, "the API and the page")
    except ServerError as error:
        raise CommandError(str(error)) from error
    finally:
        if is_embedded(settings.clickhouse):
            warming_up.join(MOST_WARM_UP_S)
    return 0
