"""Names in perf maps, as run times write them -> function, file and line."""

import re
from typing import NamedTuple

# V8 (node --perf-basic-prof): KIND:TIER FUNCTION FILE:LINE:COLUMN, the tier a sign or nothing. Both the function
# ("get total") and the path may have spaces: the path begins where one may begin, else behind the last space. No
# expression covers it all, as that would take quadratic time.
_V8 = re.compile(r"(LazyCompile|Function|JS|Script|Eval|Callback):[*~^+'o]?")
_PATH = re.compile(r" (?:/|file://|node:|internal/|\[eval|evalmachine|webpack|[A-Za-z]:\\)")
_NAMELESS = {"Script": "(script)", "Eval": "(eval)"}


class JitName(NamedTuple):
    """What the host itself can say of a frame; "" and 0 where it cannot."""

    function: str
    file: str
    line: int = 0


def parse_name(text: str) -> JitName:
    """CPython's trampolines are called `py::FUNCTION:FILE` (python -X perf); what is in no known form is a function."""
    if text.startswith("py::"):
        function, _, file = text[4:].partition(":")
        return JitName(function, file)
    return _of_v8(text) or JitName(text, "")


def _of_v8(text: str) -> JitName | None:
    kind = _V8.match(text)
    where, _, column = text.rpartition(":")
    where, _, line = where.rpartition(":")
    if kind is None or not (column.isdecimal() and line.isdecimal() and len(line) < 10):
        return None
    path = _PATH.search(where, kind.end())
    space = path.start() if path else where.rfind(" ", kind.end())
    if space < 0:
        return None
    function = where[kind.end() : space] or _NAMELESS.get(kind[1], "(anonymous)")
    return JitName(function, where[space + 1 :].removeprefix("file://"), int(line))
