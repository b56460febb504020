"""Samples one by one, for other stores of profiles."""

from typing import Annotated

import numpy as np
from fastapi import APIRouter, Depends
from starlette.responses import Response

from api.http.app_state import ApiState, app_state
from api.http.parameters import selection
from api.queries.selection.selection import Selection
from api.queries.stacks.single_samples import MAX_SAMPLES, read_single_samples
from api.render.otlp import MEDIA_TYPE, otlp

router = APIRouter(tags=["profiles"])

_SCHEMA = {"schema": {"type": "string", "format": "binary"}}


@router.get(
    "/api/v1/export/otlp",
    summary="Return samples as OTLP profiles",
    response_class=Response,
    responses={
        200: {"description": f"`ProfilesData` with at most {MAX_SAMPLES} samples", "content": {MEDIA_TYPE: _SCHEMA}}
    },
)
def export_otlp(
    selection: Annotated[Selection, Depends(selection)], state: Annotated[ApiState, Depends(app_state)]
) -> Response:
    """The samples with their times, threads and traces, as a message of opentelemetry-proto 1.10. Gauges are not
    averaged. Ask for a minute at a time at most, as `icestream export otlp` does."""
    samples = read_single_samples(state.database, selection)
    stack_ids = np.unique(samples.stack_ids)
    stacks = state.stacks.addresses_of(stack_ids)
    data = otlp(samples, stacks, stack_ids, selection.profile_type)
    return Response(data.SerializeToString(deterministic=True), media_type=MEDIA_TYPE)
