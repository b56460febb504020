"""Health and metrics, for operators and orchestrators."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import JSONResponse, Response

from gateway.http.app_state import GatewayState, app_state
from icestream.http.metrics import CONTENT_TYPE, exposition

router = APIRouter(tags=["operations"])


@router.get("/healthz", summary="Tell whether the process is alive")
async def healthz() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/readyz", summary="Tell whether profiles can be taken (503 and the reason if not)")
def readyz(state: Annotated[GatewayState, Depends(app_state)]) -> Response:
    reason = state.publisher.ready()
    if reason is None:
        return JSONResponse({"status": "ready"})
    return JSONResponse({"status": "not ready", "reason": reason}, 503)


@router.get("/metrics", summary="Return metrics for Prometheus")
def metrics() -> Response:
    return Response(exposition(["gateway"]), media_type=CONTENT_TYPE)
