"""POST /api/v1/ingest/pprof: one pprof profile, its labels as parameters."""

from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from gateway.errors import Refused
from gateway.http.app_state import GatewayState, app_state
from gateway.http.body import read_body
from gateway.http.content_type import content_type
from gateway.labels import to_labels
from gateway.readers.pprof import Source, read_pprof
from gateway.reading_threads import in_reading_thread
from gateway.unpack import unpack

router = APIRouter(tags=["profiles"])

_NAME = "name"
_OF_SAMPLES = {"trace_id", "span_id"}
_MAX_NAME = 100
_TYPES = (
    "application/octet-stream", "application/x-protobuf", "application/protobuf", "application/vnd.google.protobuf",
    "application/gzip", "application/x-gzip", "application/x-www-form-urlencoded", "",
)  # fmt: skip
"""curl says of any body that it is of a form, unless it is told what to say."""


@router.post("/api/v1/ingest/pprof", summary="Take a pprof profile, gzipped or not")
async def ingest_pprof(request: Request, state: Annotated[GatewayState, Depends(app_state)]) -> dict[str, object]:
    """The parameter `name` is the name in the profile type; every other parameter is a label."""
    content_type(request, _TYPES)
    parameters = request.query_params.multi_items()
    beyond = Counter[str]()
    labels = to_labels([pair for pair in parameters if pair[0] != _NAME], beyond)
    if "service" not in dict(labels):
        raise Refused(400, "bad_labels", "expected the parameter service", "?service=checkout&namespace=prod")
    if of_samples := _OF_SAMPLES & dict(labels).keys():
        hint = "give samples of the profile these labels: in the request, each trace would be a series of its own"
        raise Refused(400, "bad_labels", f"{min(of_samples)} belongs to samples, not to a profile", hint)
    source = Source(labels, request.query_params.get(_NAME, "")[:_MAX_NAME], dropped=beyond)
    limit, max_series = state.settings.unpacked_bytes, state.settings.gateway_max_series
    with state.intake.memory.request() as reading:
        body = await read_body(request, state.settings, reading)
        profile = await in_reading_thread(
            lambda: read_pprof(reading.before_reading(unpack(body, limit)), source, max_series)
        )
        dropped = await state.intake.take_all([profile], "pprof")
    return {"samples": len(profile.window.pid), "dropped": dropped}
