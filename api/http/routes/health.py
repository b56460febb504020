"""Health, metrics and the description of the API, for operators and orchestrators."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from starlette.responses import HTMLResponse, JSONResponse, Response

from api.http.app_state import AppState, app_state
from api.http.openapi_page import openapi_page

router = APIRouter(tags=["operations"])


@router.get("/healthz", summary="Tell whether the process is alive")
async def healthz() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/readyz", summary="Tell whether queries can be answered (503 and the reason if not)")
def readyz(state: Annotated[AppState, Depends(app_state)]) -> Response:
    reason = state.also_ready() or state.database.ready()
    if reason is None:
        return JSONResponse({"status": "ready"})
    return JSONResponse({"status": "not ready", "reason": reason}, 503)


@router.get("/docs", summary="Show this description as a page", response_class=HTMLResponse)
def docs(request: Request) -> HTMLResponse:
    return HTMLResponse(openapi_page(request.app.openapi()))


@router.get("/metrics", summary="Return metrics for Prometheus")
def metrics() -> Response:
    return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)
