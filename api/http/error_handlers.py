"""All errors as responses: `{"error": {"code", "message", "hint"}}`, or what clients of Pyroscope read."""

import logging

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from api.errors import ApiError, Code, bad_request
from api.http import connect

PYROSCOPE = ("/querier.", "/pyroscope/")
"""How the paths begin whose clients, such as Grafana, read errors as the Connect protocol has them, and no others."""

_log = logging.getLogger(__name__)


def add_error_handlers(app: FastAPI) -> None:
    """Makes the application answer every exception."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _bad_parameter)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _unexpected)


def error_response(path: str, error: ApiError) -> Response:
    """The error in the form for clients of this path."""
    if path.startswith(PYROSCOPE):
        return connect.error_response(error)
    body = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
    return JSONResponse(body, error.status, error.headers)


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(request.url.path, error)


async def _bad_parameter(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"][1:]) or "request"
    problem = ApiError(400, "bad_parameter", f"{name}: {first['msg']}", "/docs describes the parameters")
    return error_response(request.url.path, problem)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    codes: dict[int, Code] = {404: "not_found", 405: "method_not_allowed"}
    code = codes.get(error.status_code, "http_error")
    hint = "/docs lists the routes" if error.status_code in (404, 405) else ""
    path = request.url.path
    message = f"{request.method} {path}: {error.detail}"
    return error_response(path, ApiError(error.status_code, code, message, hint, error.headers))


async def _gone(request: Request, error: Exception) -> Response:
    """The client has gone, so nobody reads the answer."""
    return error_response(request.url.path, bad_request("bad_body", "the body ended too early"))


async def _unexpected(request: Request, error: Exception) -> Response:
    _log.error("%s %s", request.method, request.url, exc_info=error)
    unexpected = ApiError(500, "internal_error", "an unexpected error", "see the log of the API")
    return error_response(request.url.path, unexpected)
