"""What errors look like, for /openapi.json."""

from api.errors import CODES, Code
from api.http.answer_model import Responses

_DESCRIPTIONS = {
    400: "A parameter is wrong or unknown; the message says which",
    404: "There is no such thing",
    408: "The body of the request did not come in time",
    422: "The query takes more than one query may; the hint says what to narrow",
    500: "An unexpected error, which the log of the API describes",
    503: "Ask again after `Retry-After` seconds",
}


def error_responses(*statuses: int) -> Responses:
    """The `responses` of routes that may fail with these statuses."""
    return {
        status: {
            "description": _DESCRIPTIONS[status],
            "content": {"application/json": {"schema": _schema(CODES[status])}},
        }
        for status in statuses
    }


def _schema(codes: tuple[Code, ...]) -> dict[str, object]:
    text: dict[str, object] = {"type": "string"}
    members: dict[str, dict[str, object]] = {"code": text | {"enum": list(codes)}, "message": text, "hint": text}
    return _object({"error": _object(members)})


def _object(members: dict[str, dict[str, object]]) -> dict[str, object]:
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}
