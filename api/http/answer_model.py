"""What answers look like, for /openapi.json. Answers are made without it: to check 50,000 frames takes time."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Responses = dict[int | str, dict[str, Any]]


class Answer(BaseModel):
    """A JSON object with these members and no others."""

    model_config = ConfigDict(extra="forbid")


class RangeAnswer(Answer):
    start: str
    end: str


class RollupPart(RangeAnswer):
    """What was read from rollups of one level instead of samples."""

    level: str
    buckets: int


class SelectionAnswer(RangeAnswer):
    """What was selected."""

    profile_type: str
    unit: str
    aggregation: Literal["sum", "average"]
    selector: str
    rollups: list[RollupPart]


SELECTION_EXAMPLE = {
    "profile_type": "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
    "unit": "nanoseconds",
    "aggregation": "sum",
    "selector": '{service="checkout"}',
    "start": "2026-01-31T12:00:00.000Z",
    "end": "2026-01-31T12:15:00.000Z",
    "rollups": [],
}


def described(model: Any, example: dict[str, Any], description: str = "The answer") -> Responses:
    """The `responses` of a route that answers with JSON."""
    return {200: {"model": model, "description": description, "content": {"application/json": {"example": example}}}}
