"""POST /v1development/profiles: OTLP/HTTP, as protobuf and as JSON."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from gateway.errors import Refused
from gateway.http import otlp_answers
from gateway.http.app_state import AppState, app_state
from gateway.http.body import read_body
from gateway.otlp_intake import take_profiles
from gateway.readers import otlp_json
from gateway.readers.otlp import parse_profiles

router = APIRouter(tags=["profiles"])


@router.post("/v1development/profiles", summary="Take OTLP profiles")
async def export_profiles(request: Request, state: Annotated[AppState, Depends(app_state)]) -> Response:
    """Profiles that cannot be taken are counted in `partial_success`; the others are taken."""
    try:
        parse = otlp_json.parse_profiles if otlp_answers.encoding(request) == "json" else parse_profiles
        body = await read_body(request, state.settings)
        answer = await take_profiles(state.intake, lambda: parse(body), state.settings.gateway_max_series)
        return otlp_answers.answer(request, answer)
    except Refused as error:
        return otlp_answers.refusal(request, error)
