"""Answers of OTLP/HTTP (opentelemetry.io/docs/specs/otlp): in the encoding of the request."""

from typing import Literal

from google.protobuf import json_format
from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gateway import metrics
from gateway.errors import Refused
from gateway.http.content_type import content_type
from icestream.columns.packed import varint

PROTOBUF, JSON = "application/x-protobuf", "application/json"
_CODES = {503: 14, 429: 8, 500: 13}
"""Codes of google.rpc.Code by HTTP status; 3 is INVALID_ARGUMENT."""
_TOO_SLOW, _LATER = 408, 503
"""OTLP's senders send again after 429, 502, 503 and 504 only, and drop what they have after 408."""


def encoding(request: Request) -> Literal["protobuf", "json"]:
    """Raises Refused."""
    return "json" if content_type(request, (PROTOBUF, JSON)) == JSON else "protobuf"


def answer(request: Request, message: Message) -> Response:
    if encoding(request) == "json":
        return Response(json_format.MessageToJson(message, indent=None), media_type=JSON)
    return Response(message.SerializeToString(), media_type=PROTOBUF)


def refusal(request: Request, error: Refused) -> Response:
    """Returns a google.rpc.Status: code = 1, message = 2."""
    metrics.REFUSED.labels(error.code).inc()
    status = _LATER if error.status == _TOO_SLOW else error.status
    code, text = _CODES.get(status, 3), error.message
    if request.headers.get("content-type", "").startswith(JSON):
        return JSONResponse({"code": code, "message": text}, status, error.headers)
    data = text.encode()
    body = b"\x08" + varint(code) + b"\x12" + varint(len(data)) + data
    return Response(body, status, error.headers, PROTOBUF)
