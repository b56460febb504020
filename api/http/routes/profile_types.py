"""Which profile types there are."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from api.http.answer_model import Answer, described
from api.http.answers import json_response
from api.http.app_state import ApiState, app_state
from api.queries.labels.profile_types import read_profile_types

router = APIRouter(tags=["labels"])


class ProfileType(Answer):
    id: str
    name: str
    sample_type: str
    sample_unit: str
    period_type: str
    period_unit: str


class ProfileTypes(Answer):
    profile_types: list[ProfileType]


_PARTS = ("name", "sample_type", "sample_unit", "period_type", "period_unit")
_EXAMPLE = {
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
    summary="List profile types",
    responses=described(ProfileTypes, _EXAMPLE),
)
def profile_types(state: Annotated[ApiState, Depends(app_state)]) -> Response:
    """All profile types that ever had samples."""
    entries = [
        {"id": profile_type} | dict(zip(_PARTS, profile_type.split(":"), strict=False))
        for profile_type in read_profile_types(state.database)
    ]
    return json_response({"profile_types": entries})
