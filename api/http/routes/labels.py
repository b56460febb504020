"""What there is to ask for: labels, their values, profile types."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from starlette.responses import Response

from api.http.answers import json_response
from api.http.app_state import Context, context
from api.queries.conditions import Where, add_series_matchers, add_time
from api.queries.database import Database, texts
from api.queries.selection import EndParam, SelectorParam, StartParam, parse_selector
from api.queries.time_range import parse_range

router = APIRouter(tags=["labels"])

_MAX_TYPES = 200
LimitParam = Annotated[int, Query(ge=1, le=10_000, description="How many to list.")]


def series_where(selector: SelectorParam = "{}", start: StartParam = None, end: EndParam = None) -> Where:
    """Conditions on `series`; without start and end, all that were ever seen. Raises ApiError."""
    where = Where()
    add_series_matchers(where, parse_selector(selector))
    if start or end:
        time = parse_range(start, end)
        inner = Where(parameters=where.parameters)
        add_time(inner, time.start_unix_nano, time.end_unix_nano)
        where.add(f"series_id IN (SELECT series_id FROM samples {inner.sql})")
    return where


@router.get(
    "/api/v1/labels",
    summary="Names of labels",
    responses={200: {"content": {"application/json": {"example": {"labels": ["host", "service"], "more": False}}}}},
)
def labels(
    where: Annotated[Where, Depends(series_where)],
    context: Annotated[Context, Depends(context)],
    limit: LimitParam = 1000,
) -> Response:
    """Of series that match the selector; with start or end, of those that have samples in that time."""
    answer = context.database.table(
        f"SELECT DISTINCT toString(arrayJoin(mapKeys(labels))) AS name FROM series {where.sql}"
        f" ORDER BY name LIMIT {limit + 1}",
        where.parameters,
    )
    return _listed("labels", texts(answer["name"]), limit)


@router.get(
    "/api/v1/labels/{name}/values",
    summary="Values of a label",
    responses={200: {"content": {"application/json": {"example": {"values": ["cart", "checkout"], "more": False}}}}},
)
def label_values(
    name: Annotated[str, Path(max_length=500, description="The label.", examples=["service"])],
    where: Annotated[Where, Depends(series_where)],
    context: Annotated[Context, Depends(context)],
    contains: Annotated[str, Query(max_length=200, description="Only values with this in them, in any case.")] = "",
    limit: LimitParam = 1000,
) -> Response:
    """As labels; empty values are not listed."""
    value = f"toString(labels[{where.bind(name, 'String')}])"
    where.add(f"{value} != ''")
    if contains:
        where.add(f"positionCaseInsensitiveUTF8({value}, {where.bind(contains, 'String')}) > 0")
    answer = context.database.table(
        f"SELECT DISTINCT {value} AS value FROM series {where.sql} ORDER BY value LIMIT {limit + 1}", where.parameters
    )
    return _listed("values", texts(answer["value"]), limit)


_TYPES_EXAMPLE = {
    "profile_types": [
        {
            "id": "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
            "name": "process_cpu",
            "sample_type": "cpu",
            "sample_unit": "nanoseconds",
            "period_type": "cpu",
            "period_unit": "nanoseconds",
        }
    ]
}


@router.get(
    "/api/v1/profile-types",
    summary="Profile types that have samples",
    responses={200: {"content": {"application/json": {"example": _TYPES_EXAMPLE}}}},
)
def profile_types(context: Annotated[Context, Depends(context)]) -> Response:
    """All that were ever seen."""
    names = ("name", "sample_type", "sample_unit", "period_type", "period_unit")
    found = read_profile_types(context.database)
    listed = [{"id": each} | dict(zip(names, each.split(":"), strict=False)) for each in found]
    return json_response({"profile_types": listed})


def read_profile_types(database: Database) -> list[str]:
    """The primary key starts with the profile type, so that the next one is found without reading the rows of one."""
    found: list[str] = []
    while len(found) < _MAX_TYPES:
        where = Where()
        if found:
            where.add(f"profile_type > {where.bind(found[-1], 'String')}")
        answer = database.table(
            f"SELECT toString(profile_type) AS id FROM samples {where.sql} ORDER BY profile_type LIMIT 1",
            where.parameters,
        )
        if not len(answer):
            break
        found += texts(answer["id"])
    return found


def _listed(name: str, found: list[str], limit: int) -> Response:
    return json_response({name: found[:limit], "more": len(found) > limit})
