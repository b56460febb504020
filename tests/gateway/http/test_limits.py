"""Senders that are slow, or many."""

import asyncio
import json

import pytest
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from gateway.errors import Refused
from gateway.http.body import read_body
from gateway.http.middleware import LimitRequests
from gateway.settings import GatewaySettings

POST: Scope = {"type": "http", "method": "POST", "path": "/api/v1/ingest/pprof", "headers": []}


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


def test_a_body_that_does_not_come_is_given_up() -> None:
    settings = GatewaySettings(gateway_body_s=0.1)
    with pytest.raises(Refused) as refused:
        asyncio.run(read_body(Request(POST, never), settings))
    assert (refused.value.status, refused.value.code) == (408, "too_slow")


def test_beyond_the_limit_requests_get_503_and_health_is_answered() -> None:
    async def ask() -> list[int]:
        free = asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"] != "/healthz":
                await free.wait()
            await send({"type": "http.response.start", "status": 200})

        limited = LimitRequests(app, running=1)
        statuses: list[int] = []

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            elif message["body"]:
                assert json.loads(message["body"])["error"]["code"] == "busy"

        first = asyncio.create_task(limited(POST, never, send))
        await asyncio.sleep(0)
        await limited(POST, never, send)
        await limited({**POST, "path": "/healthz"}, never, send)
        free.set()
        await first
        await limited(POST, never, send)
        return statuses

    assert asyncio.run(ask()) == [503, 200, 200, 200]
