"""Refusals as the Connect protocol has them (connectrpc.com/docs/protocol): `{"code", "message"}`."""

from starlette.responses import JSONResponse

from gateway import metrics
from gateway.errors import Refused

SERVICE = "/push.v1.PusherService/"
"""What the paths of its procedures begin with."""
_CODES = {
    404: "unimplemented", 405: "unimplemented", 408: "deadline_exceeded", 415: "unimplemented", 500: "internal",
    503: "unavailable",
}  # fmt: skip
"""All others, also 413, are invalid_argument: Alloy sends a request ten times if the answer is resource_exhausted or
internal, and takes a 400 without a code for internal (shouldRetry in its internal/component/pyroscope/write)."""


def connect_response(error: Refused) -> JSONResponse:
    """Counts the refusal, and returns what its sender gets."""
    metrics.REFUSED.labels(error.code).inc()
    answer = {"code": _CODES.get(error.status, "invalid_argument"), "message": error.message}
    return JSONResponse(answer, error.status, error.headers)
