"""Errors as callers see them: a 4xx or 503 with `{"error": {"code", "message", "hint"}}`."""

from collections.abc import Mapping

from starlette.responses import JSONResponse


class ApiError(Exception):
    """Ends a request. `code` is for programs and stays, `message` says what is wrong, `hint` what to do about it."""

    def __init__(
        self, status: int, code: str, message: str, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        self.headers = dict(headers or {})


def bad_request(code: str, message: str, hint: str = "") -> ApiError:
    return ApiError(400, code, message, hint)


def too_large(message: str, hint: str = "") -> ApiError:
    """The query is understood, but would take more than one query may."""
    return ApiError(
        422, "query_too_large", message, hint or "narrow the selector, or the time between start and end, and ask again"
    )


def unavailable(message: str, hint: str = "", retry_after_s: int = 5) -> ApiError:
    return ApiError(503, "unavailable", message, hint, {"Retry-After": str(retry_after_s)})


def response(error: ApiError) -> JSONResponse:
    body = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
    return JSONResponse(body, error.status, error.headers)
