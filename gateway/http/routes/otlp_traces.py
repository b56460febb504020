"""POST /v1/traces: OTLP/HTTP, as protobuf and as JSON."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from gateway.errors import Refused
from gateway.http import otlp_answers
from gateway.http.app_state import GatewayState, app_state
from gateway.http.body import read_body
from gateway.otlp_intake import take_spans

router = APIRouter(tags=["spans"])


@router.post("/v1/traces", summary="Take OTLP spans")
async def export_traces(request: Request, state: Annotated[GatewayState, Depends(app_state)]) -> Response:
    """Spans that cannot be taken are counted in `partial_success`; the others are taken."""
    try:
        is_json = otlp_answers.encoding(request) == "json"
        with state.intake.memory.request() as reading:
            body = await read_body(request, state.settings, reading)
            answer = await take_spans(state.intake, reading, body, is_json)
        return otlp_answers.answer(request, answer)
    except Refused as error:
        return otlp_answers.refusal(request, error)
