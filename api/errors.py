"""Errors that end a request with a 4xx or 503."""

from collections.abc import Mapping
from typing import Literal

Code = Literal[
    "bad_selector", "bad_time", "bad_profile_type", "bad_trace_id", "bad_step", "bad_cursor", "bad_regex",
    "bad_parameter", "bad_body", "bad_sql", "unknown_parameter", "no_baseline", "foreign_host", "foreign_page",
    "unknown_trace", "no_slow_requests", "not_found", "method_not_allowed", "http_error", "too_slow", "query_too_large",
    "internal_error", "busy", "unavailable",
]  # fmt: skip
CODES: dict[int, tuple[Code, ...]] = {
    400: (
        "bad_selector", "bad_time", "bad_profile_type", "bad_trace_id", "bad_step", "bad_cursor", "bad_regex",
        "bad_parameter", "bad_body", "bad_sql", "unknown_parameter", "no_baseline", "foreign_host", "foreign_page",
    ),
    404: ("unknown_trace", "no_slow_requests", "not_found"),
    405: ("method_not_allowed",),
    408: ("too_slow",),
    422: ("query_too_large",),
    500: ("internal_error",),
    503: ("busy", "unavailable"),
}  # fmt: skip
"""The codes that errors of each status have."""


class ApiError(Exception):
    """Ends a request. `code` is for programs and stays, `message` says what is wrong, `hint` what to do about it."""

    def __init__(
        self, status: int, code: Code, message: str, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        self.headers = dict(headers or {})


def bad_request(code: Code, message: str, hint: str = "") -> ApiError:
    """The caller asked for something that cannot be understood."""
    return ApiError(400, code, message, hint)


def too_large(message: str, hint: str = "narrow the selector or the time range, and ask again") -> ApiError:
    """The query is understood, but exceeds the limits of one query."""
    return ApiError(422, "query_too_large", message, hint)


def unavailable(message: str, hint: str = "", retry_after_s: int = 5) -> ApiError:
    """The answer is not available now; the caller may ask again."""
    return ApiError(503, "unavailable", message, hint, {"Retry-After": str(retry_after_s)})
