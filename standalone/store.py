"""The store: the sinks and the API in one process, because only one process can open the embedded ClickHouse."""

import logging
import threading
from contextlib import closing

from clickhouse_connect.driver.exceptions import ClickHouseError

from api.http.app import create_app
from api.warm_up import MOST_WARM_UP_S, start_warming_up
from icestream.clickhouse.client import Clients, is_embedded
from icestream.files.free_space import DiskFullError
from icestream.http.server import Server
from icestream.process.loaded_code import drop_start_pages
from jobs.server import JobServer
from sinks import service
from sinks.clickhouse.migrate import are_new, migrate, shown
from sinks.clickhouse.retention import set_retention
from standalone.settings import StoreSettings

_RETRY_S = 2.0

log = logging.getLogger(__name__)


class StoreError(Exception):
    """The store cannot go on; the message says why."""


def run_store(settings: StoreSettings, stop: threading.Event) -> None:
    """Creates the tables, then runs until `stop` is set. Waits for a ClickHouse server that cannot be reached, and
    while the disk is too full to change tables.

    Raises StoreError, ServerError and MigrationError.
    """
    clients = Clients(settings.clickhouse)
    problem: list[str | None] = ["the tables are not created yet"]
    sinks: list[service.Running] = []
    warming_up: list[threading.Thread] = []

    def also_ready() -> str | None:
        return sinks[0].problem() if sinks else problem[0]

    app = create_app(settings, clients, also_ready, other_parts=["sinks"])
    server = Server(app, settings.listen)
    server.start()
    log.info("the API and the page are at http://%s", server.address)
    try:
        if _create_tables(clients, settings, stop, problem):
            drop_start_pages()  # making and loading the tables leaves 50 MB
            warming_up.append(start_warming_up(app.state.shared))
            sinks.append(service.start(settings, stop, clients))
            with closing(JobServer(settings, clients)):
                _watch(server, sinks[0], stop)
    finally:
        stop.set()
        server.close()
        if sinks:
            sinks[0].join()
        for thread in warming_up:
            thread.join(MOST_WARM_UP_S)


def _create_tables(clients: Clients, settings: StoreSettings, stop: threading.Event, problem: list[str | None]) -> bool:
    """Returns False if `stop` was set first. `problem[0]` says what it waits for."""
    while not stop.is_set():
        try:
            client = clients.get()
            done = migrate(client)
            if done:
                log.info("made tables: %s", ", ".join(done))
            set_retention(client, settings.retention_days, settings.rollup_days, new=are_new(done))
            return True
        except DiskFullError as error:
            problem[0] = f"the tables cannot be brought up to date: {error}"
        except ClickHouseError as error:
            text = str(error).strip()
            if is_embedded(settings.clickhouse):
                raise StoreError(f"the embedded ClickHouse in {settings.clickhouse} does not open: {text}") from error
            problem[0] = f"ClickHouse at {shown(settings.clickhouse)}: {text}"
        log.warning("%s; trying again", problem[0])
        clients.discard()
        stop.wait(_RETRY_S)
    return False


def _watch(server: Server, sinks: service.Running, stop: threading.Event) -> None:
    while not stop.wait(0.2):
        if sinks.failed:
            raise StoreError(sinks.problem())
        if not server.alive():
            raise StoreError("the API's server ended")
