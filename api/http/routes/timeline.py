"""Profiles over time."""

import re
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from api.errors import bad_request, too_large
from api.http.answers import json_response
from api.http.app_state import Context, context
from api.queries.selection import Scope, scope
from api.queries.timeline import read_timeline
from icestream.times import TimeError, parse_unix_nano

router = APIRouter(tags=["profiles"])

_MAX_STEPS = 11_000
_DEFAULT_STEPS = 120
_MAX_LABELS = 5
_EXAMPLE = {
    "unit": "nanoseconds",
    "step_ms": 60000,
    "times": [1769860800000, 1769860860000],
    "series": [{"labels": {"service": "checkout"}, "values": [1200000000, 800000000], "samples": [120, 80]}],
    "rest": None,
}


@router.get(
    "/api/v1/series",
    summary="Samples over time",
    responses={200: {"content": {"application/json": {"example": _EXAMPLE}}}},
)
def series(
    scope: Annotated[Scope, Depends(scope)],
    context: Annotated[Context, Depends(context)],
    step: Annotated[
        str | None,
        Query(max_length=20, description="As 15s, 1m, 1h, or seconds; default: about 120 steps.", examples=["1m"]),
    ] = None,
    sum_by: Annotated[
        str,
        Query(max_length=500, description="Labels, with commas between; empty: one sum of all.", examples=["service"]),
    ] = "",
    limit: Annotated[int, Query(ge=1, le=1000, description="Series, heaviest first; the others are `rest`.")] = 50,
) -> Response:
    """Sums in each step, not rates: divide by the step for CPUs in use. `times` are Unix milliseconds.

    The last step may end after `end`.
    """
    names = tuple(dict.fromkeys(name.strip() for name in sum_by.split(",") if name.strip()))
    if len(names) > _MAX_LABELS:
        raise bad_request("bad_parameter", f"sum_by: at most {_MAX_LABELS} labels", "name fewer")
    range_ms = -(-(scope.time.end_unix_nano - scope.time.start_unix_nano) // 10**6)
    step_ms = _step_ms(step) if step else _default_step_ms(range_ms)
    if range_ms / step_ms > _MAX_STEPS:
        raise too_large(f"more than {_MAX_STEPS} steps", "give a larger step, or a shorter time range")
    found = read_timeline(context.database, scope, step_ms, names)
    rest = None
    if len(found.labels) > limit:
        rest = {
            "series": len(found.labels) - limit,
            "values": found.values[limit:].sum(axis=0).tolist(),
            "samples": found.counts[limit:].sum(axis=0).tolist(),
        }
    shown = zip(found.labels[:limit], found.values, found.counts, strict=False)
    listed = [
        {"labels": dict(zip(names, labels, strict=True)), "values": values.tolist(), "samples": counts.tolist()}
        for labels, values, counts in shown
    ]
    said = {"step_ms": step_ms, "times": np.asarray(found.times_unix_milli).tolist(), "series": listed, "rest": rest}
    return json_response(scope.as_json() | said)


def _step_ms(text: str) -> int:
    try:
        if re.fullmatch(r"\d{1,8}(?:ms|s|m|h|d|w)", text):
            step_ms = parse_unix_nano(f"now+{text}", 0) // 10**6
        else:
            step_ms = parse_unix_nano(text, 0) // 10**6 if re.fullmatch(r"[\d.]{1,12}", text) else 0
    except TimeError:
        step_ms = 0
    if step_ms <= 0:
        raise bad_request("bad_step", f"not a step: {text!r}", "for example 15s, 1m, 1h, or a number of seconds")
    return step_ms


def _default_step_ms(range_ms: int) -> int:
    """A round step that gives about 120."""
    steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 604800]
    wanted = range_ms / _DEFAULT_STEPS
    return next((s * 1000 for s in steps if s * 1000 >= wanted), -(-int(wanted) // 604_800_000) * 604_800_000)
