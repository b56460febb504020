"""The revision of OTLP profiles that a sender says it sends (opentelemetry-proto 857), until profiles are stable."""

from collections.abc import Sequence

from gateway.errors import Refused

HEADER = "otlp-profiles-development-version"
"""The header of a request over HTTP, a call over gRPC, or a message in Kafka. Missing means revision 1."""
REVISIONS = (1,)
"""Those that are read."""

_SHOWN = 40


def check_revision(values: Sequence[str]) -> None:
    """`values` are those of the header. Raises Refused; what is in a body tells nothing about its revision."""
    if len(values) > 1:
        raise _refused("came more than once")
    if values and values[0] not in map(str, REVISIONS):
        raise _refused(f"is {values[0][:_SHOWN]!r}")


def _refused(what: str) -> Refused:
    expected = " or ".join(map(str, REVISIONS))
    message = f"the header {HEADER} {what}; expected {expected}, the revision of OTLP profiles that this gateway reads"
    return Refused(400, "unsupported", message, "use a version of the gateway, or of the sender, with the other's")
