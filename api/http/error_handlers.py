"""All errors in one shape."""

import logging

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from api.errors import ApiError, response

_log = logging.getLogger(__name__)


def add_handlers(app: FastAPI) -> None:
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _bad_parameter)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return response(error)


async def _bad_parameter(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = ".".join(str(part) for part in first["loc"][1:]) or "request"
    return response(ApiError(400, "bad_parameter", f"{name}: {first['msg']}", "the parameters are described in /docs"))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
    hint = "the routes are listed in /docs" if error.status_code in (404, 405) else ""
    return response(
        ApiError(error.status_code, code, f"{request.method} {request.url.path}: {error.detail}", hint, error.headers)
    )


async def _unexpected(request: Request, error: Exception) -> Response:
    _log.error("%s %s", request.method, request.url, exc_info=error)
    return response(ApiError(500, "internal_error", "this should not have happened", "the log of the API says more"))
