"""What is missing in a time range."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field
from starlette.responses import Response

from api.http.answer_model import Answer, RangeAnswer, described
from api.http.answers import json_response
from api.http.app_state import ApiState, app_state
from api.http.parameters import EndParam, SelectorParam, StartParam, parse_selector, parse_time_range
from api.queries.holes import read_completeness
from icestream.times import format_unix_nano

router = APIRouter(tags=["profiles"])


class HoleAnswer(Answer):
    kind: str
    host_id: str
    host: str = Field(description="Its label `host`; empty if that is not known, or there are many hosts")
    count: int
    seconds: float
    missing_cpu_ns: int | None
    first: str
    last: str
    detail: str


class CompletenessAnswer(RangeAnswer):
    complete: bool
    known_from: str | None
    hosts: int
    windows: int
    sampled_cpu_ns: int
    missing_cpu_ns: int
    holes: list[HoleAnswer]
    more: int


_EXAMPLE = {
    "start": "2026-01-31T12:00:00.000Z",
    "end": "2026-01-31T12:15:00.000Z",
    "complete": False,
    "known_from": "2026-01-31T12:01:00.000Z",
    "hosts": 20,
    "windows": 3597,
    "sampled_cpu_ns": 5400000000000,
    "missing_cpu_ns": 4500000000,
    "holes": [
        {
            "kind": "missing_windows",
            "host_id": "0f3c51f2b0d84c9ab8e04f0f2a7c1d11",
            "host": "node-7",
            "count": 3,
            "seconds": 15.0,
            "missing_cpu_ns": 4500000000,
            "first": "2026-01-31T12:03:10.000Z",
            "last": "2026-01-31T12:03:25.000Z",
            "detail": "",
        }
    ],
    "more": 0,
}


@router.get(
    "/api/v1/completeness",
    summary="Say what is missing",
    responses=described(CompletenessAnswer, _EXAMPLE),
)
def completeness(
    state: Annotated[ApiState, Depends(app_state)],
    selector: SelectorParam = "{}",
    start: StartParam = None,
    end: EndParam = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Holes to list, largest first.")] = 1000,
) -> Response:
    """Holes by host and kind: windows and samples that are not stored, times in which a host sent nothing, and lowered
    frequencies. The selector chooses the hosts that have samples with these labels. Which batches are stored is
    known for as long as rows are kept. If the range begins earlier, `known_from` is the moment from which on it is
    known.
    """
    time_range = parse_time_range(start, end)
    found = read_completeness(state.database, time_range, parse_selector(selector))
    known_from = found.known_from_unix_milli
    return json_response(
        time_range.as_json()
        | {
            "complete": found.complete,
            "known_from": None if known_from is None else format_unix_nano(known_from * 10**6),
            "hosts": found.hosts,
            "windows": found.windows,
            "sampled_cpu_ns": found.sampled_cpu_ns,
            "missing_cpu_ns": found.missing_cpu_ns,
            "holes": [hole.as_json() for hole in found.holes[:limit]],
            "more": max(0, len(found.holes) - limit),
        }
    )
