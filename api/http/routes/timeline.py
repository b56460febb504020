"""Samples over time."""

import re
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from api.errors import bad_request, too_large
from api.http.answer_model import SELECTION_EXAMPLE, Answer, SelectionAnswer, described
from api.http.answers import json_response
from api.http.app_state import ApiState, app_state
from api.http.parameters import selection
from api.queries.selection.selection import Selection
from api.queries.selection.time_range import TimeRange
from api.queries.stacks.timeline import read_timeline
from icestream.times import TimeError, parse_unix_nano

router = APIRouter(tags=["profiles"])


class Group(Answer):
    labels: dict[str, str]
    values: list[int]
    samples: list[int]


class RestOfTimeline(Answer):
    groups: int
    values: list[int]
    samples: list[int]


class TimelineAnswer(SelectionAnswer):
    step_ms: int
    times_unix_milli: list[int]
    groups: list[Group]
    rest: RestOfTimeline | None


_MAX_STEPS = 11_000
_DEFAULT_STEPS = 120
MAX_LABELS = 5
_ROUND_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 604800)
_EXAMPLE = {
    **SELECTION_EXAMPLE,
    "step_ms": 60000,
    "times_unix_milli": [1769860800000, 1769860860000],
    "groups": [{"labels": {"service": "checkout"}, "values": [1200000000, 800000000], "samples": [120, 80]}],
    "rest": {"groups": 3, "values": [40000000, 0], "samples": [4, 0]},
}


@router.get(
    "/api/v1/timeline",
    summary="Sum up samples over time",
    responses=described(TimelineAnswer, _EXAMPLE),
)
def timeline(
    selection: Annotated[Selection, Depends(selection)],
    state: Annotated[ApiState, Depends(app_state)],
    step: Annotated[
        str | None,
        Query(max_length=20, description="Such as 15s, 1m, 1h, or seconds; default: about 120 steps.", examples=["1m"]),
    ] = None,
    sum_by: Annotated[
        str,
        Query(
            max_length=500,
            description="Labels, separated by commas; their values make the groups. Empty: one group.",
            examples=["service"],
        ),
    ] = "",
    limit: Annotated[int, Query(ge=1, le=1000, description="Groups, heaviest first; `rest` sums up the others.")] = 50,
) -> Response:
    """Sums for each step, not rates: divide by the step to get the CPUs in use.

    `times_unix_milli` says when each step starts. The first step may start before `start`, at a whole minute, hour or
    day, and the last one may end after `end`; only samples between them are counted.
    """
    names = tuple(dict.fromkeys(name.strip() for name in sum_by.split(",") if name.strip()))
    if len(names) > MAX_LABELS:
        raise bad_request("bad_parameter", f"sum_by: more than {MAX_LABELS} labels", "give fewer labels")
    step_ms = _step_ms(step, selection.time_range)
    sums = read_timeline(state.database, selection, step_ms, names)
    rest = None
    if len(sums.labels) > limit:
        rest = {
            "groups": len(sums.labels) - limit,
            "values": sums.values[limit:].sum(axis=0),
            "samples": sums.counts[limit:].sum(axis=0),
        }
    groups = [
        {"labels": dict(zip(names, labels, strict=True)), "values": values, "samples": counts}
        for labels, values, counts in zip(sums.labels[:limit], sums.values, sums.counts, strict=False)
    ]
    steps = {"step_ms": step_ms, "times_unix_milli": sums.times_unix_milli, "rollups": sums.rollups}
    return json_response(selection.as_json() | steps | {"groups": groups, "rest": rest})


def check_steps(step_ms: int, time_range: TimeRange) -> None:
    """Raises ApiError if the time range has too many steps."""
    if (time_range.end_unix_nano - time_range.start_unix_nano) / (step_ms * 10**6) > _MAX_STEPS:
        raise too_large(f"more than {_MAX_STEPS} steps", "give a larger step, or a shorter time range")


def _step_ms(text: str | None, time_range: TimeRange) -> int:
    """Raises ApiError."""
    length_ms = -(-(time_range.end_unix_nano - time_range.start_unix_nano) // 10**6)
    step_ms = _parse_step_ms(text) if text else _default_step_ms(length_ms)
    check_steps(step_ms, time_range)
    return step_ms


def _parse_step_ms(text: str) -> int:
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


def _default_step_ms(length_ms: int) -> int:
    """A round step that gives about _DEFAULT_STEPS."""
    exact = length_ms / _DEFAULT_STEPS
    for step_s in _ROUND_STEPS_S:
        if step_s * 1000 >= exact:
            return step_s * 1000
    largest_ms = _ROUND_STEPS_S[-1] * 1000
    return -(-int(exact) // largest_ms) * largest_ms
