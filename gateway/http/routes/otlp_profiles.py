"""POST /v1development/profiles: OTLP/HTTP, as protobuf and as JSON."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData
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
    """Every parameter is a label. Profiles that cannot be taken are counted in `partial_success`; the others are
    taken."""
    try:
        parse = otlp_json.parse_profiles if otlp_answers.encoding(request) == "json" else parse_profiles
        body = await read_body(request, state.settings)
        labels = request.query_params.multi_items()
        answer = await take_profiles(
            state.intake, lambda: _with_labels(parse(body), labels), state.settings.gateway_max_series
        )
        return otlp_answers.answer(request, answer)
    except Refused as error:
        return otlp_answers.refusal(request, error)


def _with_labels(data: ProfilesData, labels: Sequence[tuple[str, str]]) -> ProfilesData:
    """Adds labels to all resources: for senders that can say no more than an address, as Pyroscope's Java agent."""
    given = [KeyValue(key=name, value=AnyValue(string_value=value)) for name, value in labels if name]
    for resource in data.resource_profiles:
        resource.resource.attributes.extend(given)
    return data
