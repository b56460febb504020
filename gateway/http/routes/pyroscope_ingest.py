"""POST /ingest: profiles of Pyroscope's older SDKs, one in each request."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from gateway.http.app_state import GatewayState, app_state
from gateway.http.body import read_body
from gateway.http.multipart import split_parts
from gateway.readers.ingested import Parts, read_ingested
from gateway.reading_memory import Reading
from gateway.reading_threads import in_reading_thread
from gateway.sent_profile import SentProfile
from gateway.unpack import unpack

router = APIRouter(tags=["profiles"])

_READ = ("profile", "sample_type_config", "prev_profile")
"""The parts of a form that are unpacked."""


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
