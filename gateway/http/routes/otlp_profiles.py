"""POST /v1development/profiles: OTLP/HTTP, as protobuf and as JSON."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from gateway.errors import Refused
from gateway.http import otlp_answers
from gateway.http.app_state import GatewayState, app_state
from gateway.http.body import read_body
from gateway.otlp_intake import take_profiles
from gateway.readers.otlp_revision import HEADER, check_revision
from icestream.messages.checks import MAX_LABELS

router = APIRouter(tags=["profiles"])


@router.post("/v1development/profiles", summary="Take OTLP profiles")
async def export_profiles(request: Request, state: Annotated[GatewayState, Depends(app_state)]) -> Response:
    """Every parameter is a label. Profiles that cannot be taken are counted in `partial_success`; the others are
    taken."""
    try:
        check_revision(request.headers.getlist(HEADER))
        is_json = otlp_answers.encoding(request) == "json"
        labels = _labels(request)
        with state.intake.memory.request() as reading:
            body, most = await read_body(request, state.settings, reading), state.settings.gateway_max_series
            answer = await take_profiles(state.intake, reading, body, most, is_json, labels=labels)
        return otlp_answers.answer(request, answer)
    except Refused as error:
        return otlp_answers.refusal(request, error)


def _labels(request: Request) -> dict[str, str]:
    """For senders that can say no more than an address, as Pyroscope's Java agent. Raises Refused."""
    given = request.query_params.multi_items()
    if len(given) > MAX_LABELS:
        raise Refused(
            400, "bad_labels", f"expected at most {MAX_LABELS} parameters, as each is a label, got {len(given)}"
        )
    return {name: value for name, value in given if name}
