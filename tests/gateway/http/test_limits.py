"""Senders that are slow, or many."""

import asyncio
import socket

import httpx2
import pytest
from prometheus_client import REGISTRY
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from gateway.errors import Refused
from gateway.http import otlp_answers
from gateway.http.body import read_body
from gateway.http.middleware import LimitRequests
from gateway.reading_memory import Reading, ReadingMemory
from gateway.settings import GatewaySettings
from icestream.settings import KafkaSettings
from tests.gateway.served import Gateway, code, serve_on_ports
from tests.waiting import PATIENCE_S, readable, wait_until

POST: Scope = {"type": "http", "method": "POST", "path": "/api/v1/ingest/pprof", "headers": []}


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


def test_a_body_that_does_not_come_is_given_up() -> None:
    settings = GatewaySettings(gateway_body_s=0.1)
    with pytest.raises(Refused) as refused:
        asyncio.run(read_body(Request(POST, never), settings, Reading(ReadingMemory(2**30))))
    assert (refused.value.status, refused.value.code) == (408, "too_slow")
    told = otlp_answers.refusal(Request(POST, never), refused.value)
    assert (told.status_code, told.body[:2]) == (503, b"\x08\x0e")  # senders of OTLP drop what gets 408


async def whole() -> Message:
    return {"type": "http.request", "body": b""}


def test_beyond_the_limit_requests_get_503_and_health_is_answered() -> None:
    async def ask() -> list[str]:
        free = asyncio.Event()
        answers: list[str] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"] != "/healthz":
                await receive()
                await free.wait()
            answers.append(scope["path"])

        async def send(message: Message) -> None:
            raise AssertionError

        limited = LimitRequests(app, running=1)
        slow = asyncio.create_task(limited(POST, never, send))  # its body does not come, so it does not count
        first = asyncio.create_task(limited(POST, whole, send))
        await asyncio.sleep(0.01)
        for path in (POST["path"], "/push.v1.PusherService/Push"):
            with pytest.raises(Refused) as refused:
                await limited({**POST, "path": path}, whole, send)
            assert (refused.value.status, refused.value.code) == (503, "busy")
        await limited({**POST, "path": "/healthz"}, never, send)
        free.set()
        await first
        await limited(POST, whole, send)
        slow.cancel()
        return answers

    assert asyncio.run(ask()) == ["/healthz", POST["path"], POST["path"]]


def test_bodies_that_do_not_come_shut_out_nobody(in_process_broker: KafkaSettings) -> None:
    settings = GatewaySettings(
        kafka=in_process_broker.kafka,
        gateway_ack_s=PATIENCE_S,
        gateway_grpc_listen="127.0.0.1:0",
        gateway_max_requests=4,
    )
    unfinished = b"POST /ingest HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nbody"
    with serve_on_ports(settings) as ports:
        host, _, port = ports.http.rpartition(":")
        slow = [socket.create_connection((host, int(port)), timeout=PATIENCE_S) for _ in range(40)]
        for connection in slow:
            connection.sendall(unfinished)
        wait_until(lambda: len(readable(slow)) == 40 - 4 * 4)  # the others may still come
        for connection in readable(slow):
            assert connection.recv(1000).startswith(b"HTTP/1.1 503")
        answer = httpx2.post(
            f"http://{ports.http}/ingest?name=a&format=lines", content=b"main;work\n", timeout=PATIENCE_S
        )
        assert answer.status_code == 200, answer.text
        for connection in slow:
            connection.close()


def test_a_page_of_a_stranger_cannot_send_profiles_by_dns_rebinding(gateway: Gateway) -> None:
    def refused() -> float:
        return REGISTRY.get_sample_value("icestream_gateway_refused_total", {"code": "foreign_host"}) or 0

    before = refused()
    for path in ("/api/v1/ingest/pprof?service=a", "/ingest", "/v1/traces", "/v1development/profiles"):
        answer = gateway.http.post(path, headers={"Host": "attacker.example"})
        assert code(answer) == (400, "foreign_host")
    push = gateway.http.post("/push.v1.PusherService/Push", headers={"Host": "attacker.example"})
    assert (push.status_code, push.json()["code"]) == (400, "invalid_argument")  # Connect's: Alloy gives up
    assert refused() == before + 5
    assert gateway.http.get("/healthz", headers={"Host": "gateway.monitoring.svc"}).status_code == 200
    assert gateway.http.post("/ingest", headers={"Host": "192.0.2.7:4040"}).json()["error"]["code"] != "foreign_host"


def test_content_types_that_a_protocol_does_not_have_are_refused(gateway: Gateway) -> None:
    for path in ("/api/v1/ingest/pprof?service=a", "/profiles/writeraw", "/api/profiles/writeraw"):
        for kind in ("text/plain", "multipart/form-data; boundary=x", "text/html"):
            assert code(gateway.http.post(path, content=b"{}", headers={"Content-Type": kind})) == (415, "unsupported")


def test_a_page_of_another_site_cannot_send_profiles(gateway: Gateway) -> None:
    for path in ("/api/v1/ingest/pprof?service=a", "/ingest", "/v1/traces", "/v1development/profiles"):
        answer = gateway.http.post(path, headers={"Origin": "http://attacker.example"})
        assert code(answer) == (400, "foreign_page")
