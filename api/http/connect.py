"""Unary calls of the Connect protocol (connectrpc.com/docs/protocol): POST /SERVICE/METHOD with a protobuf message or
its JSON, gzip or not; errors are `{"code", "message"}` with a status that fits."""

import json
import zlib
from collections.abc import Callable
from typing import TypeVar

from fastapi import APIRouter, Request
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from api.errors import ApiError
from api.http.app_state import ApiState
from api.http.unknown_fields import unknown_in_json, unknown_in_message
from icestream.labels.surrogates import without_surrogates

_MAX_BODY = 1 << 20
_MAX_AS_JSON = 20_000_000
"""Bytes in protobuf: as JSON, an answer takes up to ten times as many, and forty times as much memory."""
_PROTO, _JSON = "application/proto", "application/json"
_GZIP = 31  # zlib's window bits that mean gzip

RequestMessage = TypeVar("RequestMessage", bound=Message)


class ConnectError(Exception):
    """Ends a call with a code of the protocol and the status that goes with it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def invalid(message: str) -> ConnectError:
    """The request cannot be understood."""
    return ConnectError(400, "invalid_argument", message)


def unimplemented(message: str) -> ConnectError:
    """The request asks for something that icestream does not have."""
    return ConnectError(501, "unimplemented", message)


def add_call(
    router: APIRouter,
    path: str,
    request_type: type[RequestMessage],
    answer: Callable[[ApiState, RequestMessage], Message],
) -> None:
    """Adds a route that calls `answer` in a thread, where messages are also read and written: large ones take tenths
    of a second. `answer` may raise ApiError or ConnectError."""

    def encode_answer(shared: ApiState, body: bytes, is_json: bool) -> bytes:
        answered = answer(shared, _decode(body, request_type, is_json))
        if not is_json:
            return answered.SerializeToString()
        if answered.ByteSize() > _MAX_AS_JSON:
            problem = f"the answer has {answered.ByteSize()} bytes in protobuf, and up to {_MAX_AS_JSON} become JSON"
            raise ConnectError(429, "resource_exhausted", f"{problem}: ask for {_PROTO}")
        return json_format.MessageToJson(answered, indent=None).encode()

    async def call(request: Request) -> Response:
        try:
            is_json = _is_json(request)
            body = await _body(request)
            encoded = await run_in_threadpool(encode_answer, request.app.state.shared, body, is_json)
        except (ConnectError, ApiError) as error:
            return error_response(error)
        return Response(encoded, media_type=_JSON if is_json else _PROTO)

    router.add_api_route(path, call, methods=["POST"], include_in_schema=False)


def _is_json(request: Request) -> bool:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in (_PROTO, _JSON):
        raise ConnectError(415, "unknown", f"content-type is {media_type[:60]!r}, not {_PROTO} or {_JSON}")
    return media_type == _JSON


async def _body(request: Request) -> bytes:
    """The body, of at most _MAX_BODY bytes once it is decompressed."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise unimplemented(f"content-encoding is {encoding[:60]!r}, not gzip or identity")
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > _MAX_BODY:
            raise _too_long()
    body = b"".join(parts)
    return _unzip(body) if encoding == "gzip" and body else body


def _unzip(body: bytes) -> bytes:
    decompressor = zlib.decompressobj(_GZIP)
    try:
        data = decompressor.decompress(body, _MAX_BODY + 1)
    except zlib.error as error:
        raise invalid(f"the body is not gzip: {error}") from None
    if len(data) > _MAX_BODY:
        raise _too_long()
    if not decompressor.eof:
        raise invalid("the gzip body ends too early")
    return data


def _too_long() -> ConnectError:
    return ConnectError(429, "resource_exhausted", f"a request has at most {_MAX_BODY} bytes")


def _decode(body: bytes, request_type: type[RequestMessage], is_json: bool) -> RequestMessage:
    """Raises ConnectError, also for a field that icestream does not know."""
    try:
        if not is_json:
            message = request_type.FromString(body)
            _refuse_unknown(unknown_in_message(message))
            return message
        fields = json.loads(body or b"{}")
        if not isinstance(fields, dict):
            raise invalid("the body is not a JSON object")
        if without_surrogates(fields) != fields:
            raise invalid("a text in the body has half of a pair of surrogates")
        _refuse_unknown(unknown_in_json(fields, request_type))
        # The unknown fields that are left are empty.
        return json_format.ParseDict(fields, request_type(), ignore_unknown_fields=True)
    except (DecodeError, json_format.ParseError, ValueError, RecursionError) as error:
        raise invalid(f"the body is not a {request_type.DESCRIPTOR.name}: {error}") from None


def _refuse_unknown(field: str | None) -> None:
    if field is not None:
        raise unimplemented(f"{field[:200]}: icestream does not know this, and does not ignore what it does not know")


def _from_api_error(error: ApiError) -> ConnectError:
    codes = {400: "invalid_argument", 404: "not_found", 408: "deadline_exceeded", 503: "unavailable"}
    message = f"{error.message} ({error.hint})" if error.hint else error.message
    if error.status == 422:
        return ConnectError(429, "resource_exhausted", message)
    return ConnectError(error.status, codes.get(error.status, "internal"), message)


def error_response(error: ConnectError | ApiError) -> Response:
    """An error as the protocol has it."""
    told = _from_api_error(error) if isinstance(error, ApiError) else error
    body = json.dumps({"code": told.code, "message": str(told)})
    return Response(body, told.status, error.headers if isinstance(error, ApiError) else None, _JSON)
