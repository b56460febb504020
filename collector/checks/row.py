"""The result of a check."""

import enum
from dataclasses import dataclass


class Mark(enum.Enum):
    OK = "ok"
    LIMITED = "limited"  # the collector works, but something is left out
    MISSING = "missing"


@dataclass(frozen=True)
class Row:
    """One thing on this host. If it is `needed` and missing, the host cannot be profiled."""

    thing: str
    mark: Mark
    says: str  # the finding
    advice: str = ""  # what to do, if anything
    needed: bool = False


def ok(thing: str, says: str) -> Row:
    return Row(thing, Mark.OK, says)


def limited(thing: str, says: str, advice: str = "") -> Row:
    return Row(thing, Mark.LIMITED, says, advice)


def missing(thing: str, says: str, advice: str = "", needed: bool = False) -> Row:
    return Row(thing, Mark.MISSING, says, advice, needed)
