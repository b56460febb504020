"""All errors as responses of one form, `{"error": {"code", "message", "hint"}}`, or of that of a path's protocol."""

import logging

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gateway import metrics
from gateway.errors import Code, Refused
from gateway.http.connect import SERVICE, connect_response

_log = logging.getLogger(__name__)


def add_error_handlers(app: FastAPI) -> None:
    """Makes the application answer every exception in this form."""
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)


def error_response(path: str, error: Refused) -> JSONResponse:
    """Counts the refusal, and returns what its sender gets."""
    if path.startswith(SERVICE):
        return connect_response(error)
    metrics.REFUSED.labels(error.code).inc()
    body = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
    return JSONResponse(body, error.status, error.headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return error_response(request.url.path, error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    codes: dict[int, Code] = {404: "not_found", 405: "method_not_allowed"}
    message = f"{request.method} {request.url.path}: {error.detail}"
    code = codes.get(error.status_code, "http_error")
    return error_response(request.url.path, Refused(error.status_code, code, message, headers=error.headers))


async def _unexpected(request: Request, error: Exception) -> Response:
    _log.error("%s %s", request.method, request.url.path, exc_info=error)
    unexpected = Refused(500, "internal_error", "an unexpected error", "see the log of the gateway")
    return error_response(request.url.path, unexpected)
