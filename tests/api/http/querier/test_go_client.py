"""Pyroscope's published Go client (github.com/grafana/pyroscope/api, connectrpc.com/connect) reads from the API.

`make soak` runs it: to compile the client takes 50 CPU seconds. In CI, other tests of this folder ask every call that
it asks."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from api.http.app import create_app
from api.settings import ApiSettings
from icestream.clickhouse.client import Clients
from icestream.http.server import Server
from tests.api.fill import Sample, fill, frame
from tests.api.http.querier.calls import CPU, END_MS, START_MS
from tests.go import build, needs_go

SOURCE = Path(__file__).parent / "goclient"
MAIN, HOT, COLD = frame("main"), frame("hot"), frame("cold")
SPAN = b"1" * 8

pytestmark = [pytest.mark.soak, needs_go]


@pytest.fixture
def address(engine: str, database: str) -> Iterator[str]:
    """The API on a port."""
    server = Server(create_app(ApiSettings(), Clients(engine, database=database)), "127.0.0.1:0")
    server.start()
    yield f"http://{server.address}"
    server.close()


def test_pyroscopes_go_client_reads_every_call_in_proto_and_json(address: str, client: Client, tmp_path: Path) -> None:
    program = build(SOURCE, tmp_path / "client")
    fill(
        client,
        [
            Sample((MAIN, HOT), 30, trace_id=b"a" * 16, span_id=SPAN),
            Sample((MAIN, COLD), 10),
            Sample((MAIN, COLD), 7, labels={"service": "cart"}),
        ],
    )
    asked = [str(program), address, str(START_MS), str(END_MS), SPAN.hex()]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert answers["json"] == answers["proto"]
    answer = answers["proto"]
    assert answer["types"] == CPU
    assert "service_name" in answer["names"]
    assert answer["values"] == ["cart", "checkout"]
    assert answer["series"] == 2
    assert (answer["group"], answer["points"]) == ("checkout", 40)
    assert answer["functions"][0] == "total"
    assert set(answer["functions"]) == {"total", "main", "hot", "cold"}
    assert answer["total"] == 40
    assert answer["levels"][0] == {"values": [0, 40, 0, 0]}
    assert len(answer["levels"]) == 3
    assert answer["span"] == 30
    assert answer["leaves"] == {"hot": 30, "cold": 17}
    assert (answer["left"], answer["right"]) == (7, 40)
    assert answer["refused"] == "invalid_argument"
