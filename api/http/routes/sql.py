"""SQL of users: one SELECT, read only."""

import dataclasses
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from api.errors import bad_request
from api.http.answer_model import Answer, described
from api.http.answers import json_response
from api.http.app_state import ApiState, app_state
from api.http.error_model import error_responses
from api.http.limited_body import limited_body
from api.queries.read_only_sql import MAX_ROWS, MAX_SQL

router = APIRouter(tags=["sql"])


class ColumnAnswer(Answer):
    name: str
    type: str


class SqlAnswerModel(Answer):
    columns: list[ColumnAnswer]
    rows: list[list[Any]]
    more: bool


_EXAMPLE = {
    "columns": [{"name": "service", "type": "LowCardinality(String)"}, {"name": "cpu_s", "type": "Float64"}],
    "rows": [["checkout", 12.5]],
    "more": False,
}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {"text/plain": {"schema": {"type": "string", "maxLength": MAX_SQL, "example": "SELECT 1"}}},
    }
}


async def statement(request: Request, state: Annotated[ApiState, Depends(app_state)]) -> str:
    """For the route, as a dependency: the body. Raises ApiError."""
    state.require(state.settings.api_sql, "--api-sql", "this API does not answer SQL")
    body = await limited_body(request, MAX_SQL, "the statement", "write a shorter one")
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise bad_request("bad_sql", "the statement is not UTF-8") from None


@router.post(
    "/api/v1/sql",
    summary="Answer one SELECT",
    responses=described(SqlAnswerModel, _EXAMPLE) | error_responses(404),
    openapi_extra=_BODY,
)
def sql(
    state: Annotated[ApiState, Depends(app_state)],
    sql: Annotated[str, Depends(statement)],
    rows: Annotated[int, Query(ge=1, le=MAX_ROWS, description="At most so many rows.")] = 1_000,
) -> Response:
    """The body is one SELECT of ClickHouse's SQL over icestream's tables and views, with functions that compute only.
    `more` says whether there are more rows. Numbers of 64 bits are written as they are."""
    return json_response(dataclasses.asdict(state.sql.answer(sql, rows)))
