"""All errors as responses of one form: `{"error": {"code", "message", "hint"}}`."""

import logging

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from api.errors import ApiError, Code, bad_request

_log = logging.getLogger(__name__)


def add_error_handlers(app: FastAPI) -> None:
    """Makes the application answer every exception in this form."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _bad_parameter)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _unexpected)


def error_response(error: ApiError) -> JSONResponse:
    body = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
    return JSONResponse(body, error.status, error.headers)


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(error)


async def _bad_parameter(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"][1:]) or "request"
    return error_response(ApiError(400, "bad_parameter", f"{name}: {first['msg']}", "/docs describes the parameters"))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    codes: dict[int, Code] = {404: "not_found", 405: "method_not_allowed"}
    code = codes.get(error.status_code, "http_error")
    hint = "/docs lists the routes" if error.status_code in (404, 405) else ""
    return error_response(
        ApiError(error.status_code, code, f"{request.method} {request.url.path}: {error.detail}", hint, error.headers)
    )


async def _gone(request: Request, error: Exception) -> Response:
    """The client has gone, so nobody reads the answer."""
    return error_response(bad_request("bad_body", "the body ended too early"))


async def _unexpected(request: Request, error: Exception) -> Response:
    _log.error("%s %s", request.method, request.url, exc_info=error)
    return error_response(ApiError(500, "internal_error", "an unexpected error", "see the log of the API"))
