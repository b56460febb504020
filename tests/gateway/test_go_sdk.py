"""Pyroscope's Go SDK pushes two programs, and Pyroscope's Go client reads what they did. `make soak` runs it: it builds
two programs, and quicker tests show the same with what these sent (readers/test_captured.py, test_go_client.py)."""

import json
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from api.http.app import create_app as create_api
from api.settings import ApiSettings
from gateway.http.app import create_app
from gateway.publisher import BatchPublisher
from icestream.clickhouse.client import Clients
from icestream.http.server import Server
from icestream.topics import DEFAULT_PROFILE_TYPE, RAW
from tests import go
from tests.api.http.querier.test_go_client import SOURCE as CLIENT
from tests.gateway.conftest import DATABASE
from tests.gateway.readers.test_captured import TYPES
from tests.gateway.served import Gateway
from tests.gateway.stored import Store
from tests.pipeline.reading import messages
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.soak, go.needs_go]
SDK = Path(__file__).parent / "gosdk"
UPLOAD_RATE_S = 15
"""The SDK says that profiles began at a multiple of it."""


def test_what_the_go_sdk_pushes_the_go_client_reads(
    gateway: Gateway, store: Store, engine: str, tmp_path: Path
) -> None:
    start_s = int(time.time()) - UPLOAD_RATE_S
    sdk, client = go.build(SDK, tmp_path / "sdk"), go.build(CLIENT, tmp_path / "client")
    span = push(gateway, sdk)
    for message in messages(gateway.settings, RAW):
        store.add(message.value())
    start, end = str(start_s), str(int(time.time()) + 1)

    sums = {kind: by_function(store, "checkout", kind, start, end) for kind in TYPES}
    for profile_type, function in TYPES.items():
        assert sums[profile_type][function] > 0, profile_type
    assert sums["goroutines:goroutine:count:goroutine:count"]["main.wait"] == 7

    answers = ask(client, engine, f"{start}000", f"{end}000", span)
    assert answers["json"] == answers["proto"]
    answer = answers["proto"]
    of_checkout, of_cart = (total(store, service, start, end) for service in ("checkout", "cart"))
    assert (answer["total"], answer["right"], answer["left"]) == (of_checkout, of_checkout, of_cart)
    assert sum(answer["leaves"].values()) == of_checkout + of_cart
    assert 0 < answer["span"] < of_checkout
    assert {"cart", "checkout"} <= set(answer["values"])
    assert {"service_name", "endpoint", "span_name", "region", "host"} <= set(answer["names"])
    assert {"total", "main.main", "main.burn"} <= set(answer["functions"])


def push(gateway: Gateway, program: Path) -> str:
    """Lets two services push; returns the ID of the span of the service checkout."""
    publisher = BatchPublisher(gateway.settings)
    server = Server(create_app(gateway.settings, publisher), "127.0.0.1:0")
    server.start()
    printed = {service: run(program, f"http://{server.address}", service) for service in ("cart", "checkout")}
    server.close()
    publisher.close()
    return printed["checkout"].split()[1]


def ask(program: Path, engine: str, *arguments: str) -> Any:
    server = Server(create_api(ApiSettings(), Clients(engine, database=DATABASE)), "127.0.0.1:0")
    server.start()
    printed = run(program, f"http://{server.address}", *arguments)
    server.close()
    return json.loads(printed)


def run(program: Path, *arguments: str) -> str:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def total(store: Store, service: str, start: str, end: str) -> int:
    profile = store.pprof(f'{{service="{service}"}}', DEFAULT_PROFILE_TYPE, start, end)
    return sum(sample.value[1] for sample in profile.sample)


def by_function(store: Store, service: str, profile_type: str, start: str, end: str) -> Counter[str]:
    """The values of the samples that have a function, by its name."""
    profile = store.pprof(f'{{service="{service}"}}', profile_type, start, end)
    names = {function.id: profile.string_table[function.name] for function in profile.function}
    of_location = {each.id: {names[line.function_id] for line in each.line} for each in profile.location}
    sums: Counter[str] = Counter()
    for sample in profile.sample:
        for name in set().union(*(of_location[each] for each in sample.location_id)):
            sums[name] += sample.value[1]
    return sums
