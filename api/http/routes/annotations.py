"""What was said of moments, and when new versions of services began: marks on timelines."""

import time
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from api.errors import bad_request
from api.http.answer_model import Answer, RangeAnswer, described
from api.http.answers import json_response
from api.http.app_state import ApiState, app_state
from api.http.error_model import error_responses
from api.http.limited_body import limited_body
from api.http.parameters import parse_time, selection
from api.queries.annotations import Annotation, insert_note, read_deployments, read_notes
from api.queries.selection.selection import Selection
from api.queries.selection.selector import format_selector

router = APIRouter(tags=["annotations"])
_MAX_BYTES = 16_384
_Label = Annotated[str, Field(min_length=1, max_length=200)]


class NewAnnotation(BaseModel):
    """What to say of a moment."""

    model_config = ConfigDict(extra="forbid", strict=True)
    text: str = Field(min_length=1, max_length=500)
    time: str = Field("now", max_length=64, description="as in queries: RFC 3339, Unix seconds, `now`, `now-15m`")
    labels: dict[_Label, _Label] = Field(
        default_factory=dict, max_length=8, description="what it is about; none: everything"
    )


class AnnotationAnswer(Answer):
    kind: str = Field(description="note or deployment")
    time: str
    text: str
    labels: dict[str, str]


class AnnotationsAnswer(RangeAnswer):
    profile_type: str
    selector: str
    annotations: list[AnnotationAnswer]


_NOTE = {"kind": "note", "time": "2026-01-31T12:03:10.000Z", "text": "load test", "labels": {"service": "checkout"}}
_EXAMPLE = {
    "profile_type": "process_cpu:cpu:nanoseconds:cpu:nanoseconds", "selector": "{}",
    "start": "2026-01-31T12:00:00.000Z", "end": "2026-01-31T12:15:00.000Z",
    "annotations": [
        _NOTE,
        {
            "kind": "deployment", "time": "2026-01-31T12:05:00.000Z", "text": "first samples of 1.5.0",
            "labels": {"service": "checkout", "version": "1.5.0"},
        },
    ],
}  # fmt: skip
_BODY = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": NewAnnotation.model_json_schema()}}}
}


async def new_annotation(request: Request, state: Annotated[ApiState, Depends(app_state)]) -> NewAnnotation:
    """For the route, as a dependency: the body. Raises ApiError."""
    state.require(state.settings.api_annotations, "--api-annotations", "this API takes no annotations")
    body = await limited_body(request, _MAX_BYTES, "the annotation", "write a shorter one")
    try:
        return NewAnnotation.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"]) or "the body"
        hint = 'the body is JSON, as in {"text": "load test", "time": "now-5m", "labels": {"service": "checkout"}}'
        raise bad_request("bad_body", f"{name}: {first['msg']}", hint) from None


@router.post(
    "/api/v1/annotations",
    summary="Say something of a moment",
    responses=described(AnnotationAnswer, _NOTE) | error_responses(404),
    openapi_extra=_BODY,
)
def annotate(
    state: Annotated[ApiState, Depends(app_state)],
    given: Annotated[NewAnnotation, Depends(new_annotation)],
) -> Response:
    """Stores an annotation, which everybody sees on timelines. One that is sent twice is stored once."""
    unix_nano = parse_time(given.time, "time", time.time_ns())
    note = Annotation("note", unix_nano // 10**6, given.text, given.labels)
    insert_note(state.database, note)
    return json_response(note.as_json())


@router.get(
    "/api/v1/annotations",
    summary="List what was said of a time range, and new versions",
    responses=described(AnnotationsAnswer, _EXAMPLE),
)
def annotations(
    selection: Annotated[Selection, Depends(selection)],
    state: Annotated[ApiState, Depends(app_state)],
) -> Response:
    """Notes that the selector does not exclude (a label that a note does not have may have any value), and
    deployments: the first samples of a version (label `version` or `service_version`) of a service that had another
    one before. At most 1,000 of each, the latest ones; in the order of time."""
    found = [*read_notes(state.database, selection), *read_deployments(state.database, selection)]
    found.sort(key=lambda each: (each.unix_milli, each.text))
    head = {"profile_type": selection.profile_type, "selector": format_selector(selection.matchers)}
    answer = head | selection.time_range.as_json() | {"annotations": [each.as_json() for each in found]}
    return json_response(answer)
