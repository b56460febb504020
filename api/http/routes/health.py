"""Health, metrics and the description of the API, for operators and orchestrators."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from api.http.answer_model import Answer
from api.http.app_state import ApiState, app_state
from api.http.openapi_page import POLICY, openapi_page
from icestream.http.metrics import CONTENT_TYPE, exposition

router = APIRouter(tags=["operations"])


class HealthAnswer(Answer):
    status: Literal["ok"]


class Ready(Answer):
    status: Literal["ready"]


class NotReady(Answer):
    status: Literal["not ready"]
    reason: str


@router.get("/healthz", summary="Tell whether the process is alive")
async def healthz() -> HealthAnswer:
    return HealthAnswer(status="ok")


@router.get("/ready", include_in_schema=False)  # as Pyroscope's tools ask
@router.get(
    "/readyz",
    summary="Tell whether queries can be answered (503 and the reason if not)",
    responses={200: {"model": Ready}, 503: {"model": NotReady, "description": "Queries cannot be answered"}},
)
def readyz(state: Annotated[ApiState, Depends(app_state)]) -> Response:
    reason = state.also_ready() or state.database.ready()
    if reason is None:
        return JSONResponse({"status": "ready"})
    return JSONResponse({"status": "not ready", "reason": reason}, 503)


@router.get("/docs", summary="Show this description as a page", response_class=HTMLResponse)
def docs(request: Request) -> HTMLResponse:
    return HTMLResponse(openapi_page(request.app.openapi()), headers={"Content-Security-Policy": POLICY})


@router.get("/metrics", summary="Return metrics for Prometheus", response_class=PlainTextResponse)
def metrics(state: Annotated[ApiState, Depends(app_state)]) -> Response:
    return Response(exposition(state.parts), media_type=CONTENT_TYPE)
