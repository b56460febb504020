"""What a check found."""

import enum
from dataclasses import dataclass


class Mark(enum.Enum):
    OK = "ok"
    LIMITED = "limited"  # the collector works, and something is left out
    MISSING = "missing"


@dataclass(frozen=True)
class Row:
    """One thing of this host. Without a `needed` one that is missing nothing can be profiled."""

    thing: str
    mark: Mark
    says: str  # what was found
    advice: str = ""  # what to do, where something is to be done
    needed: bool = False


def ok(thing: str, says: str) -> Row:
    return Row(thing, Mark.OK, says)


def limited(thing: str, says: str, advice: str = "") -> Row:
    return Row(thing, Mark.LIMITED, says, advice)


def missing(thing: str, says: str, advice: str = "", needed: bool = False) -> Row:
    return Row(thing, Mark.MISSING, says, advice, needed)
