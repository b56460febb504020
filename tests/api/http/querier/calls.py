"""Calls of the QuerierService through FastAPI's test client."""

from typing import TypeVar

from google.protobuf.message import Message
from httpx2 import Response

from tests.api.conftest import Api
from tests.api.fill import START_S

START_MS, END_MS = START_S * 1000, (START_S + 3600) * 1000
CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"

Answer = TypeVar("Answer", bound=Message)


def post(api: Api, method: str, body: bytes, content_type: str = "application/proto", **headers: str) -> Response:
    path = method if method.startswith("/") else f"/querier.v1.QuerierService/{method}"
    return api.http.post(path, content=body, headers={"content-type": content_type, **headers})


def call(api: Api, method: str, asked: Message, answer: type[Answer]) -> Answer:
    response = post(api, method, asked.SerializeToString())
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/proto"
    return answer.FromString(response.content)
