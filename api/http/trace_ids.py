"""Lists of trace IDs in the body of a request, as they would be too long for its address."""

from typing import Annotated, Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.errors import bad_request, too_large
from api.http.limited_body import limited_body
from api.http.parameters import parse_trace_id

MAX_TRACES = 10_000
_MAX_BYTES = 2 * 2**20
_TYPES = ("application/json", "application/x-www-form-urlencoded", "")
"""curl says of any body that it is of a form, unless it is told what to say."""

TraceIds = Annotated[list[str], Field(min_length=1, max_length=MAX_TRACES, description="32 hex digits each")]


class OfTraces(BaseModel):
    """Which requests to merge."""

    model_config = ConfigDict(extra="forbid", strict=True)
    trace_ids: TraceIds


class OfTwoTraceLists(OfTraces):
    """Which requests to compare with which."""

    baseline_trace_ids: TraceIds


Body = TypeVar("Body", bound=OfTraces)


async def read_body(request: Request, model: type[Body]) -> Body:
    """The body of a request, its trace IDs in lower case and each once. Raises ApiError."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in _TYPES:
        raise bad_request("bad_body", f"the Content-Type is {content_type[:60]!r}", f"send {_TYPES[0]}")
    body = await limited_body(request, _MAX_BYTES, "the body", f"give at most {MAX_TRACES} trace IDs")
    try:
        given = model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"]) or "the body"
        if first["type"] == "too_long":
            raise too_large(
                f"{name}: {first['ctx']['actual_length']} trace IDs, and one query takes at most {MAX_TRACES}",
                "leave some out: every n-th of a list sorted by CPU keeps its shape",
            ) from None
        hint = 'the body is JSON, as in {"trace_ids": ["4bf92f3577b34da6a3ce929d0e0e4736"]}'
        raise bad_request("bad_body", f"{name}: {first['msg']}", hint) from None
    lists = {name: list(dict.fromkeys(map(parse_trace_id, getattr(given, name)))) for name in model.model_fields}
    return given.model_copy(update=lists)


async def of_traces(request: Request) -> OfTraces:
    """For routes, as a dependency. Raises ApiError."""
    return await read_body(request, OfTraces)


async def of_two_trace_lists(request: Request) -> OfTwoTraceLists:
    """For routes, as a dependency. Raises ApiError."""
    return await read_body(request, OfTwoTraceLists)


def described_body(model: type[OfTraces]) -> dict[str, Any]:
    """The `openapi_extra` of a route with such a body."""
    content = {"application/json": {"schema": model.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}
