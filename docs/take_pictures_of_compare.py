"""Takes the pictures of find-a-regression.md: two versions of a service whose functions cost what is known (Chromium).

    python docs/take_pictures_of_compare.py docs/img

Fills an embedded store in a temporary folder with requests of both versions, serves the page, and writes compare.png
and compare-calls.png.
"""

import argparse
import socket
import sys
import tempfile
import threading
import urllib.parse
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import uvicorn

from api.http.app import create_app
from api.settings import ApiSettings
from docs.take_picture import photograph
from icestream.clickhouse.client import Clients, connect
from sinks.clickhouse.migrate import migrate
from tests.api.fill import START_S
from tests.api.queries.two_versions import CART, CHECKOUT, COSTS, SLOWER, Version, insert_versions

_WIDTH, _HEIGHT = 1280, 720
_OPEN = "document.querySelector('#table .sides button').click(); document.activeElement.blur()"
_CARTS = {"hash_cart": 6.0, "render": 3.9}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to write the pictures")
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory(prefix="icestream-picture-") as data:
        dsn = f"chdb://{data}"
        client = connect(dsn)
        migrate(client)
        insert_versions(client, *requests_of("1.0", COSTS), *requests_of("1.1", SLOWER), seed=2)
        listening = socket.create_server(("127.0.0.1", 0))
        app = create_app(ApiSettings(clickhouse=dsn), Clients(dsn))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        serving = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        serving.start()
        try:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
            photograph(address(url), folder / "compare.png", _WIDTH, _HEIGHT, "")
            of_checkout = address(url, f', operation="{CHECKOUT}"', table="calls")
            photograph(of_checkout, folder / "compare-calls.png", _WIDTH, _HEIGHT, _OPEN)
        finally:
            server.should_exit = True
            serving.join()


def requests_of(version: str, costs: dict[str, float]) -> tuple[Version, Version]:
    """The requests of both operations; those for carts cost the same in each version."""
    checkouts = Version(costs, 0, service_version=version, seconds=900)
    return checkouts, Version(_CARTS, 0, operation=CART, requests=900, service_version=version, seconds=900)


def address(url: str, more: str = "", **state: str) -> str:
    """The page's address with both versions, in the time of their requests."""
    old, new = (f'{{service="shop", service_version="{version}"{more}}}' for version in ("1.0", "1.1"))
    times = {"start": START_S, "end": START_S + 900}
    query = {"view": "compare", "selector": new, "baseline_selector": old, **times, **state}
    return f"{url}?{urllib.parse.urlencode(query)}"


if __name__ == "__main__":
    main()
