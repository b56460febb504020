"""The result of a check."""

import enum
from dataclasses import dataclass


class CheckMark(enum.Enum):
    OK = "ok"
    LIMITED = "limited"  # the collector works, but something is left out
    MISSING = "missing"


@dataclass(frozen=True)
class CheckRow:
    """One thing on this host. If it is `needed` and missing, the host cannot be profiled."""

    thing: str
    mark: CheckMark
    says: str  # the finding
    advice: str = ""  # what to do, if anything
    needed: bool = False


def ok(thing: str, says: str) -> CheckRow:
    return CheckRow(thing, CheckMark.OK, says)


def limited(thing: str, says: str, advice: str = "") -> CheckRow:
    return CheckRow(thing, CheckMark.LIMITED, says, advice)


def missing(thing: str, says: str, advice: str = "", needed: bool = False) -> CheckRow:
    return CheckRow(thing, CheckMark.MISSING, says, advice, needed)
