"""How large a program RE2 makes of a regular expression.

A counted repetition copies what it repeats, and one inside another multiplies: `(a{99}){99}` is 9,801 copies. RE2 takes
0.1 ms to compile each, and refuses only what needs megabytes, which takes seconds.
"""

import re

MAX_SIZE = 5_000
"""Takes a third of a second to compile."""
_COUNTED = re.compile(r"\{(\d{1,4})(?:,(\d{0,4}))?\}")
_LONG_ESCAPE = re.compile(r"\\[pPx]\{[^}]*\}|\\[pP].", re.DOTALL)
_CLASS_OF_UNICODE = 300
"""The size of \\pL and the like, which are hundreds of ranges."""


def pattern_size(pattern: str) -> int:
    """Returns about how many elements the pattern has after its repetitions were copied. Also of patterns that are not
    valid."""
    groups, before = [0], [0]  # elements of each open group; those before the last element or group
    at = 0
    while at < len(pattern):
        char = pattern[at]
        counted = _COUNTED.match(pattern, at) if char == "{" else None
        if counted is not None:
            times = max(int(counted[1]), int(counted[2] or 0), 1)
            groups[-1] += (groups[-1] - before[-1]) * (times - 1)
            at = counted.end()
        elif char == "(":
            before[-1] = groups[-1]
            groups.append(0)
            before.append(0)
            at += 1
        elif char == ")" and len(groups) > 1:
            size = groups.pop()
            before.pop()
            groups[-1] += size
            at += 1
        elif char in "*+?":
            at += 1
        else:
            end, size = _element(pattern, at)
            before[-1] = groups[-1]
            groups[-1] += size
            at = end
    return sum(groups)


def _element(pattern: str, at: int) -> tuple[int, int]:
    """Returns the end of the character, escape or class that begins here, and its size."""
    if pattern[at] == "\\":
        return _escape(pattern, at)
    if pattern[at] != "[":
        return at + 1, 1
    end = at + 2 if pattern.startswith("[^", at) else at + 1
    size, first = 1, end
    while end < len(pattern) and (pattern[end] != "]" or end == first):
        if pattern.startswith("[:", end) and ":]" in pattern[end:]:
            end = pattern.index(":]", end) + 2
        else:
            end, one = _escape(pattern, end) if pattern[end] == "\\" else (end + 1, 1)
            size += one - 1  # the class itself counts as one
    return end + 1, size


def _escape(pattern: str, at: int) -> tuple[int, int]:
    """Returns the end of the escape that begins here, and its size."""
    whole = _LONG_ESCAPE.match(pattern, at)
    return (whole.end() if whole else at + 2), _CLASS_OF_UNICODE if pattern[at + 1 : at + 2] in ("p", "P") else 1
