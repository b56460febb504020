"""Cursors of paged lists: what the next page needs to know, in a form that callers just hand back."""

import base64
import binascii
import json
import re

from api.errors import bad_request
from api.queries.heaviest_traces import After
from api.queries.time_range import TimeRange

_LIMIT = 2**63


def write_cursor(order: str, time: TimeRange, after: After) -> str:
    body = json.dumps([order, time.start_unix_nano, time.end_unix_nano, after.value, after.trace_id])
    return base64.urlsafe_b64encode(body.encode()).decode().rstrip("=")


def read_cursor(text: str, order: str) -> tuple[TimeRange, After]:
    """The range of the first page (so that `now` stays when it was) and where to go on. Raises ApiError."""
    try:
        body = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        of, start, end, value, trace_id = body
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise _bad() from None
    numbers = (start, end, value)
    if not all(type(n) is int and -_LIMIT <= n < _LIMIT for n in numbers) or not 0 <= start < end:
        raise _bad()
    if not isinstance(trace_id, str) or not re.fullmatch(r"[0-9a-f]{32}", trace_id) or not isinstance(of, str):
        raise _bad()
    if of != order:
        raise bad_request(
            "bad_cursor", f"this cursor is of a list with order={of[:20]}", f"give order={of[:20]} with it"
        )
    return TimeRange(start, end), After(value, trace_id)


def _bad() -> Exception:
    return bad_request(
        "bad_cursor", "not a cursor", "give what `next` of the page before said, or none for the first page"
    )
