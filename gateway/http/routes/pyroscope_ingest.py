"""POST /ingest: profiles of Pyroscope's older SDKs, one in each request."""

import re
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from gateway.errors import Refused
from gateway.http.app_state import GatewayState, app_state
from gateway.http.body import read_body
from gateway.readers.ingested import Parts, read_ingested
from gateway.reading_memory import Reading
from gateway.reading_threads import in_reading_thread
from gateway.sent_profile import SentProfile
from gateway.unpack import unpack

router = APIRouter(tags=["profiles"])

_READ = ("profile", "sample_type_config", "prev_profile")
"""The parts of a form that are unpacked."""
_BOUNDARY = re.compile(r'boundary="?([^";,]{1,70})"?', re.IGNORECASE)
_NAME = re.compile(rb'name="([^"]*)"', re.IGNORECASE)
_MAX_PARTS = 16


@router.post("/ingest", summary="Take a profile as older SDKs of Pyroscope send it: pprof, folded, lines, speedscope")
async def ingest(request: Request, state: Annotated[GatewayState, Depends(app_state)]) -> dict[str, object]:
    with state.intake.memory.request() as reading:
        body = await read_body(request, state.settings, reading)
        profile = await in_reading_thread(_read, body, request, state, reading)
        dropped = await state.intake.take_all([profile], "ingest")
    return {"samples": len(profile.window.pid), "dropped": dropped}


def _read(body: bytes, request: Request, state: GatewayState, reading: Reading) -> SentProfile:
    content_type = request.headers.get("content-type", "")
    is_multipart = content_type.lower().startswith("multipart/form-data")
    files = split_parts(content_type, body) if is_multipart else {"profile": body}
    parts = _unpacked(files, state.settings.unpacked_bytes)
    given = dict(request.query_params)
    if is_multipart:
        given.setdefault("format", "pprof")
    return read_ingested(parts, given, state.settings.gateway_max_series, reading)


def _unpacked(files: Mapping[str, bytes], room: int) -> Parts:
    """The parts become at most `room` bytes together. Raises Refused."""
    found = {}
    for name in _READ:
        if name in files:
            found[name] = unpack(files[name], room)
            room -= len(found[name])
    return Parts(found)


def split_parts(content_type: str, body: bytes) -> dict[str, bytes]:
    """Returns the content of each part of a form (RFC 7578) by its name. Raises Refused."""
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        raise Refused(400, "bad_body", "expected a boundary in the Content-Type multipart/form-data")
    delimiter = b"\r\n--" + boundary[1].encode()
    pieces = (b"\r\n" + body).split(delimiter, _MAX_PARTS + 2)
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise Refused(400, "bad_body", f"expected multipart/form-data with at most {_MAX_PARTS} parts, complete")
    parts = {}
    for piece in pieces[1:-1]:
        head, _, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        name = _NAME.search(head)
        if name is not None:
            parts[name[1].decode(errors="replace")] = content
    return parts
