"""POST /v1/traces: OTLP/HTTP, as protobuf and as JSON."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.responses import Response

from gateway.errors import Refused
from gateway.http import otlp_answers
from gateway.http.app_state import AppState, app_state
from gateway.http.body import read_body
from gateway.readers import otlp_json
from gateway.readers.otlp_spans import parse_spans, rejection

router = APIRouter(tags=["spans"])


@router.post("/v1/traces", summary="Take OTLP spans")
async def export_traces(request: Request, state: Annotated[AppState, Depends(app_state)]) -> Response:
    """Spans that cannot be taken are counted in `partial_success`; the others are taken."""
    try:
        parse = otlp_json.parse_spans if otlp_answers.encoding(request) == "json" else parse_spans
        body = await read_body(request, state.settings)
        rejected = await state.intake.take_spans(await asyncio.to_thread(parse, body), "otlp")
        answer = ExportTraceServiceResponse()
        if rejected:
            answer.partial_success.rejected_spans = rejected.total()
            answer.partial_success.error_message = rejection(rejected)
        return otlp_answers.answer(request, answer)
    except Refused as error:
        return otlp_answers.refusal(request, error)
