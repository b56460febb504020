"""Why the gateway does not take a profile."""

from collections.abc import Mapping
from typing import Literal

Code = Literal[
    "bad_body", "bad_profile", "bad_spans", "bad_labels", "foreign_host", "foreign_page", "too_large", "too_slow",
    "unsupported", "not_found", "method_not_allowed", "http_error", "internal_error", "busy", "unavailable",
]  # fmt: skip


class Refused(Exception):
    """Ends a request. `code` is for programs and stays, `message` says what is wrong, `hint` what to do about it."""

    def __init__(
        self, status: int, code: Code, message: str, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code: Code = code
        self.message = message
        self.hint = hint
        self.headers = dict(headers or {})


def bad_profile(message: str) -> Refused:
    """The profile contradicts its format, or itself."""
    return Refused(400, "bad_profile", message, "nothing of it was taken; sending it again will not help")


def bad_spans(message: str) -> Refused:
    """A request with spans contradicts its format."""
    return Refused(400, "bad_spans", message, "nothing of it was taken; sending it again will not help")


def foreign_host() -> Refused:
    """The request is for another machine: a page of a stranger may have made it."""
    hint = "use an address, or add the name to --gateway-allowed-hosts"
    return Refused(400, "foreign_host", "the Host header names another machine", hint)


def foreign_page() -> Refused:
    """A page of another site sent the request."""
    return Refused(400, "foreign_page", "a page of another site sent this", "send it by a program")


def unsupported(message: str, hint: str = "") -> Refused:
    """The gateway does not read this format."""
    return Refused(415, "unsupported", message, hint)


def too_large(limit: int, what: str) -> Refused:
    return Refused(413, "too_large", f"{what} has more than {limit} bytes", "send smaller profiles, or more often")


def too_many(limit: int, what: str) -> Refused:
    return Refused(413, "too_large", f"expected at most {limit} {what}", "send smaller requests, or more often")


def unavailable(message: str, code: Code = "unavailable", retry_after_s: int = 5) -> Refused:
    """Nothing was acknowledged; the sender should send it again."""
    return Refused(503, code, message, "send it again later", {"Retry-After": str(retry_after_s)})
