"""POST /v1development/profiles: OTLP/HTTP, as protobuf and as JSON."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceResponse
from starlette.responses import Response

from gateway.errors import Refused
from gateway.http import otlp_answers
from gateway.http.app_state import AppState, app_state
from gateway.http.body import read_body
from gateway.readers import otlp_json
from gateway.readers.otlp import OtlpProfiles, parse_profiles, read_otlp

router = APIRouter(tags=["profiles"])
_MAX_TOLD = 3


@router.post("/v1development/profiles", summary="Take OTLP profiles")
async def export_profiles(request: Request, state: Annotated[AppState, Depends(app_state)]) -> Response:
    """Profiles that cannot be taken are counted in `partial_success`; the others are taken."""
    try:
        is_json = otlp_answers.encoding(request) == "json"
        body = await read_body(request, state.settings)
        found = await asyncio.to_thread(_read, body, is_json, state.settings.gateway_max_series)
        return otlp_answers.answer(request, await take(state, found))
    except Refused as error:
        return otlp_answers.refusal(request, error)


async def take(state: AppState, found: OtlpProfiles) -> ExportProfilesServiceResponse:
    """Returns what was not taken. Raises Refused."""
    dropped, refused = await state.intake.take_each(found.profiles, "otlp")
    refused = [*found.refused, *refused]
    answer = ExportProfilesServiceResponse()
    texts = [f"{count} {what} dropped" for what, count in sorted(dropped.items())]
    if refused or texts:
        answer.partial_success.rejected_profiles = len(refused)
        answer.partial_success.error_message = "; ".join(texts + sorted(set(refused))[:_MAX_TOLD])
    return answer


def _read(body: bytes, is_json: bool, max_series: int) -> OtlpProfiles:
    return read_otlp(otlp_json.parse_profiles(body) if is_json else parse_profiles(body), max_series)
