"""Serves the API and the page over generated data, from an embedded engine of its own.

    python -m tests.browser.serve FOLDER [PORT [SETTINGS]]

Prints one line of JSON when it is ready: address, start, middle, end, wide_end, versions_end (Unix seconds) and
wide_ns. SETTINGS of ClickHouse are a JSON object.
"""

import json
import socket
import sys
import time
from dataclasses import asdict

import numpy as np
import uvicorn

from api.http.app import create_app
from api.settings import ApiSettings
from icestream.clickhouse.client import Clients, connect
from sinks.clickhouse.migrate import migrate
from tests.browser.fill import fill, fill_versions, fill_wide, fill_with_a_gap, insert_batches
from tests.browser.rows import PERIOD_NS


def main(folder: str, port: str = "0", settings: str = "{}") -> None:
    dsn, options = f"chdb://{folder}", {"settings": json.loads(settings)}
    client = connect(dsn, **options)
    migrate(client)
    client.command("ALTER TABLE batches MODIFY TTL toDateTime(last_time) + INTERVAL 14 DAY")  # as new stores have it
    filled = fill(client, int(time.time()) // 60 * 60)
    wide_end = filled.start - 3600
    wide_ns = fill_wide(client, wide_end)
    fill_with_a_gap(client, wide_end)
    versions_end = wide_end - 3600
    fill_versions(client, versions_end)
    slow = {"period": 2 * PERIOD_NS, "configured_period": PERIOD_NS}
    insert_batches(client, "node-slow", wide_end - 3 * 3600, np.arange(1, 121), **slow)
    listening = socket.create_server(("127.0.0.1", int(port)))
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    site = {
        "address": address,
        **asdict(filled),
        "wide_end": wide_end,
        "wide_ns": wide_ns,
        "versions_end": versions_end,
    }
    print(json.dumps(site), flush=True)
    app = create_app(ApiSettings(clickhouse=dsn), Clients(dsn, **options))
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
