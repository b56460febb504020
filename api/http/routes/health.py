"""What operators and orchestrators ask."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from starlette.responses import HTMLResponse, JSONResponse, Response

from api.http.app_state import Context, context
from api.http.openapi_page import reference

router = APIRouter(tags=["operations"])


@router.get("/healthz", summary="Whether the process lives")
async def healthz() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/readyz", summary="Whether queries can be answered (503: not, and why)")
def readyz(context: Annotated[Context, Depends(context)]) -> Response:
    reason = context.also_ready() or context.database.ready()
    if reason is None:
        return JSONResponse({"status": "ready"})
    return JSONResponse({"status": "not ready", "reason": reason}, 503)


@router.get("/docs", summary="This description as a page", response_class=HTMLResponse)
def docs(request: Request) -> HTMLResponse:
    return HTMLResponse(reference(request.app.openapi()))


@router.get("/metrics", summary="Metrics for Prometheus")
def metrics() -> Response:
    return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)
