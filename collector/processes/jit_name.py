"""Names in perf maps, as run times write them -> function, file and line."""

import re
from typing import NamedTuple

# V8 (node --perf-basic-prof): KIND:TIER FUNCTION FILE:LINE:COLUMN, the tier a sign or nothing. Both the function
# ("get total") and the path may have spaces: the path begins where one may begin, else behind the last space.
_V8 = re.compile(
    r"(?P<kind>LazyCompile|Function|JS|Script|Eval|Callback):[*~^+'o]?(?P<function>.*?) "
    r"(?P<file>(?:/|file://|node:|internal/|\[eval|evalmachine|webpack|[A-Za-z]:\\).*|[^ ]*):(?P<line>\d{1,9}):\d+"
)
_NAMELESS = {"Script": "(script)", "Eval": "(eval)"}


class Name(NamedTuple):
    """What the host itself can say of a frame; "" and 0 where it cannot."""

    function: str
    file: str
    line: int = 0


def parse_name(text: str) -> Name:
    """CPython's trampolines are called `py::FUNCTION:FILE` (python -X perf); what is in no known form is a function."""
    if text.startswith("py::"):
        function, _, file = text[4:].partition(":")
        return Name(function, file)
    match = _V8.fullmatch(text)
    if match is None:
        return Name(text, "")
    function = match["function"] or _NAMELESS.get(match["kind"], "(anonymous)")
    return Name(function, match["file"].removeprefix("file://"), int(match["line"]))
