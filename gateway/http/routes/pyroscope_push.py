"""Pushes of Pyroscope's SDKs and Alloy (Connect, connectrpc.com/docs/protocol), and of Parca's HTTP API.

Parca's agent does not use that API: it sends over gRPC."""

import json
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse, Response

from gateway.errors import bad_profile
from gateway.http.app_state import GatewayState, app_state
from gateway.http.body import read_body
from gateway.http.connect import SERVICE
from gateway.http.content_type import content_type
from gateway.readers.pushed import parse_push, parse_write_raw, read_push
from gateway.reading_memory import Reading, json_elements, protobuf_elements
from gateway.reading_threads import in_reading_thread
from icestream.pyroscope.push_pb2 import PushRequest

router = APIRouter(tags=["profiles"])

_PROTO, _JSON = "application/proto", "application/json"
_MAX_REASONS = 3
_DROPPED = "X-Icestream-Dropped"
"""The answers of these protocols have no field for it."""


@router.post(f"{SERVICE}Push", summary="Take profiles of Pyroscope's SDKs and Alloy")
async def push(request: Request, state: Annotated[GatewayState, Depends(app_state)]) -> Response:
    """Takes those profiles that can be taken. If others cannot, the answer is an error that says so."""
    kind = content_type(request, (_PROTO, _JSON))
    with state.intake.memory.request() as reading:
        body = await read_body(request, state.settings, reading)
        elements = json_elements if kind == _JSON else protobuf_elements
        pushed = await in_reading_thread(lambda: parse_push(reading.before_reading(body, elements), kind == _JSON))
        headers = await _take(state, reading, pushed, "push")
    return Response(b"{}" if kind == _JSON else b"", headers=headers, media_type=kind)


@router.post("/api/profiles/writeraw", include_in_schema=False)
@router.post("/profiles/writeraw", summary="Take profiles as Parca does")
async def write_raw(request: Request, state: Annotated[GatewayState, Depends(app_state)]) -> Response:
    content_type(request, (_JSON, ""))
    with state.intake.memory.request() as reading:
        body = await read_body(request, state.settings, reading)
        pushed = await in_reading_thread(lambda: parse_write_raw(reading.before_reading(body, json_elements)))
        headers = await _take(state, reading, pushed, "write_raw")
    return JSONResponse({}, headers=headers)


async def _take(state: GatewayState, reading: Reading, request: PushRequest, format_name: str) -> dict[str, str]:
    """Returns the headers of the answer, which tell what was dropped. Raises Refused."""
    settings = state.settings
    pushed = await in_reading_thread(read_push, request, settings.unpacked_bytes, settings.gateway_max_series, reading)
    dropped, refused = await state.intake.take_each(pushed, format_name)
    headers = {_DROPPED: json.dumps(dropped)} if dropped else {}
    if refused:
        reasons = "; ".join(sorted(set(refused))[:_MAX_REASONS])
        count = len(pushed.profiles) + len(pushed.refused)
        error = bad_profile(f"{len(refused)} of {count} profiles were refused, the others were taken: {reasons}")
        error.headers.update(headers)
        raise error
    return headers
