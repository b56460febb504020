"""`icestream export otlp` into a gateway of a second installation: merges there are what they are here."""

import contextlib
import logging
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from clickhouse_connect.driver.client import Client
from fastapi.testclient import TestClient

from api.http.app import create_app as create_api
from api.settings import ApiSettings
from gateway.http.app import create_app as create_gateway
from gateway.publisher import BatchPublisher
from gateway.settings import GatewaySettings
from icestream.cli import main
from icestream.clickhouse.client import Clients, connect
from icestream.http.server import Server
from icestream.settings import KafkaSettings
from icestream.times import format_unix_nano
from icestream.topics import DEFAULT_PROFILE_TYPE, OFF_CPU_PROFILE_TYPE, RAW
from sinks.clickhouse.migrate import migrate
from tests.api.fill import Frame, Sample, fill
from tests.gateway.conftest import DATABASE
from tests.gateway.stored import Store, values
from tests.pipeline.reading import messages
from tests.ports import free_port
from tests.waiting import PATIENCE_S, wait_until

OTHER = f"{DATABASE}_other"
NOW_S = int(time.time()) // 60 * 60 - 300
TIMES = {"start": str(NOW_S), "end": str(NOW_S + 120)}
IN_USE = "memory:inuse_space:bytes:space:bytes"
TWO_DAYS_S = 2 * 86_400
TRACE, SPAN, OTHER_TRACE = bytes(range(1, 17)), bytes(range(1, 9)), b"t" * 16

MAIN = Frame(("main",), 0x1000)
INLINED = Frame(("leaf", "middle", "outer"), 0x2000, "/lib/libc.so.6", "gnu:bbbbbbbb")
UNNAMED = Frame((), 0x3000, "/lib/libz.so.1", "gnu:cccccccc")
GO = Frame((), 0x4000, "/usr/bin/gopher", "go:a/b/c/d")
KERNEL = Frame(("do_syscall_64",), 0x50, "[kernel]", "", kind=2)
PYTHON = Frame(("handle",), 0, "[python]", "", kind=4, source="/srv/app.py")
NO_FILE = Frame((), 0x77, "", "", kind=0)

CHECKOUT = {"service": "checkout", "namespace": "prod", "pod": "checkout-1", "host": "node-1", "thread_name": "worker"}
CART = {"service": "cart", "own_label": "λ"}


def sample(
    stack: tuple[Frame, ...], value: int, count: int, labels: dict[str, str], at: float, **more: object
) -> Sample:
    return Sample(stack, value, count, labels, NOW_S + at, **more)  # type: ignore[arg-type]


SAMPLES = [
    sample((MAIN, INLINED), 30_000_000, 3, CHECKOUT, 1.001, trace_id=TRACE, span_id=SPAN),
    sample((MAIN, INLINED), 20_000_000, 2, CHECKOUT, 7.5, trace_id=TRACE, span_id=SPAN),
    sample((MAIN, PYTHON, KERNEL), 10_000_000, 1, CHECKOUT, 2, trace_id=OTHER_TRACE),
    sample((MAIN, UNNAMED), 52_631_578, 1, CHECKOUT, 33),  # of another period
    sample((MAIN, UNNAMED), 52_631_579, 2, CHECKOUT, 34),  # no whole period
    sample((), 10_000_000, 1, CART, 40),
    sample((GO, NO_FILE), 40_000_000, 4, CART, 119.999),
    sample((GO,), 10_000_000, 1, CART, 120),  # after the end
    sample((GO,), 10_000_000, 1, CART, -TWO_DAYS_S),
    # A correction: the trace became known later.
    sample((MAIN,), 10_000_000, 1, CART, 50),
    sample((MAIN,), -10_000_000, -1, CART, 50),
    sample((MAIN,), 10_000_000, 1, CART, 50, trace_id=TRACE),
    sample((MAIN, KERNEL), 123_456, 1, CHECKOUT, 20, profile_type=OFF_CPU_PROFILE_TYPE),
    *(sample((MAIN,), value, 1, CART, at, profile_type=IN_USE) for value, at in ((1000, 10), (3000, 25))),
]


@pytest.fixture
def here(engine: str, tables: Client) -> Iterator[Server]:
    """The API of the first installation."""
    fill(tables, SAMPLES)
    server = Server(create_api(ApiSettings(), Clients(engine, database=DATABASE)), "127.0.0.1:0")
    server.start()
    yield server
    server.close()
    for table in ("samples", "trace_samples", "nodes", "locations", "series", "series_seen"):
        tables.command(f"TRUNCATE TABLE {table}")


@pytest.fixture(scope="module")
def there(engine: str, tables: Client) -> Iterator[Store]:
    """The tables and the API of the second one."""
    tables.command(f"CREATE DATABASE {OTHER}")
    client = connect(engine, database=OTHER)
    migrate(client)
    client.close()
    clients = Clients(engine, database=OTHER)
    with TestClient(create_api(ApiSettings(), Clients(engine, database=OTHER)), "http://localhost") as http:
        yield Store(clients, http)


@contextlib.contextmanager
def receiving(settings: GatewaySettings) -> Iterator[str]:
    """The address of a gateway."""
    publisher = BatchPublisher(settings)
    server = Server(create_gateway(settings, publisher), settings.gateway_listen)
    server.start()
    yield f"http://{server.address}"
    server.close()
    publisher.close()


def export(here: Server, endpoint: str, *more: str) -> int:
    times = [f"--{name}={value}" for name, value in TIMES.items()]
    return main(["export", "otlp", "--url", f"http://{here.address}", "--endpoint", endpoint, *times, *more])


@pytest.mark.parametrize("max_mb", ["4", "0.0015"])
def test_merges_there_are_what_they_are_here(
    engine: str, here: Server, there: Store, in_process_broker: KafkaSettings, max_mb: str
) -> None:
    settings = GatewaySettings(kafka=in_process_broker.kafka, gateway_ack_s=PATIENCE_S, gateway_listen="127.0.0.1:0")
    with receiving(settings) as endpoint:
        assert export(here, endpoint, "--max-mb", max_mb) == 0
        within = [f"--start={NOW_S + 5}", f"--end={NOW_S + 119}"]
        assert export(here, endpoint, "--max-mb", max_mb, *within) == 0  # the same minutes again: they count once
    for message in messages(settings, RAW):
        there.add(message.value() or b"")
    with TestClient(create_api(ApiSettings(), Clients(engine, database=DATABASE)), "http://localhost") as http:
        first = Store(Clients(engine, database=DATABASE), http)
        for profile_type, selector in [
            (DEFAULT_PROFILE_TYPE, "{}"),
            (DEFAULT_PROFILE_TYPE, '{service="checkout", namespace="prod", pod="checkout-1", thread_name="worker"}'),
            (DEFAULT_PROFILE_TYPE, '{host="node-1"}'),
            (DEFAULT_PROFILE_TYPE, '{own_label="λ"}'),
            (OFF_CPU_PROFILE_TYPE, "{}"),
            (IN_USE, "{}"),
        ]:
            ours, theirs = (
                [values(store.pprof(selector, profile_type, **TIMES), column) for column in (0, 1)]
                for store in (first, there)
            )
            assert sum(ours[1].values()) > 0
            assert theirs[1] == ours[1]
            if profile_type == DEFAULT_PROFILE_TYPE and selector != "{}" and "own" in selector:
                assert theirs[0] == ours[0]
        for trace in (TRACE, OTHER_TRACE):
            ours, theirs = (store.json(f"/api/v1/traces/{trace.hex()}/cpu") for store in (first, there))
            assert ours["sampled_cpu_ns"] > 0
            for name in ("sampled_cpu_ns", "services", "spans"):
                assert theirs.get(name) == ours.get(name), name


def test_an_api_and_a_receiver_that_are_away_are_waited_for(
    engine: str, here: Server, in_process_broker: KafkaSettings, caplog: pytest.LogCaptureFixture
) -> None:
    port, api_port = free_port(), free_port()
    settings = GatewaySettings(
        kafka=in_process_broker.kafka, gateway_ack_s=PATIENCE_S, gateway_listen=f"127.0.0.1:{port}"
    )
    ended = threading.Event()

    def answer() -> None:
        wait_until(lambda: "asking again" in caplog.text)
        api = Server(create_api(ApiSettings(), Clients(engine, database=DATABASE)), f"127.0.0.1:{api_port}")
        api.start()
        wait_until(lambda: "sending again" in caplog.text)
        with receiving(settings):
            ended.wait()
        api.close()

    answering = threading.Thread(target=answer)
    answering.start()
    with caplog.at_level(logging.INFO):
        assert export(here, f"http://127.0.0.1:{port}", f"--url=http://127.0.0.1:{api_port}") == 0
    ended.set()
    answering.join()
    assert list(messages(settings, RAW))
    assert f"to continue: --start {format_unix_nano((NOW_S + 120) * 10**9)}" in caplog.text


def test_it_follows_until_it_is_told_to_stop_and_says_where_to_continue(
    here: Server, in_process_broker: KafkaSettings
) -> None:
    settings = GatewaySettings(kafka=in_process_broker.kafka, gateway_ack_s=PATIENCE_S, gateway_listen="127.0.0.1:0")
    with receiving(settings) as endpoint:
        command = [sys.executable, "-m", "icestream.cli", "export", "otlp", "--url", f"http://{here.address}"]
        command += ["--endpoint", endpoint, "--start", TIMES["start"], "--follow", "--delay", "1"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as following:
            assert following.stderr is not None
            first = next((line for line in following.stderr if "sent until" in line), "")  # a whole minute
            following.terminate()
            _, rest = following.communicate()
    assert following.returncode == 0
    assert list(messages(settings, RAW))
    assert re.search(r"sent until 20\S+:00.000Z, \d+ samples\n", first)
    assert re.search(r"to continue: --start 20\S+:00.000Z\n", rest)


def test_what_a_receiver_refuses_is_told(
    here: Server, in_process_broker: KafkaSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = GatewaySettings(
        kafka=in_process_broker.kafka, gateway_ack_s=PATIENCE_S, gateway_listen="127.0.0.1:0", max_late_days=1
    )
    with receiving(settings) as endpoint:
        assert export(here, f"{endpoint}/nowhere") == 1
        assert "answers 404" in capsys.readouterr().err
        old = [f"--start={NOW_S - TWO_DAYS_S - 10}", f"--end={NOW_S - TWO_DAYS_S + 10}"]
        assert export(here, endpoint, *old) == 1
        assert "the receiver rejected 1 profiles: " in capsys.readouterr().err
    assert export(here, "localhost:4318") == 1
    assert "not an HTTP address" in capsys.readouterr().err
    assert export(here, f"http://127.0.0.1:{free_port()}", "--give-up", "0.1") == 1
    assert "gave up" in capsys.readouterr().err
    for header in ("Authorization=\u03bb", "No Name=1", "=1", "name="):
        assert export(here, "http://localhost:4318", "--header", header) == 1
        assert "--header: expected" in capsys.readouterr().err
