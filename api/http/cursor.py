"""Cursors of paged lists: what the next page needs to know, in a form that callers only hand back."""

import base64
import binascii
import json
import re

from api.errors import ApiError, bad_request
from api.queries.selection.time_range import TimeRange
from api.queries.traces.heaviest_traces import LastTrace

_LIMIT = 2**63


def encode_cursor(order: str, time_range: TimeRange, last: LastTrace) -> str:
    """The cursor of the page after `last`."""
    body = json.dumps([order, time_range.start_unix_nano, time_range.end_unix_nano, last.value, last.trace_id])
    return base64.urlsafe_b64encode(body.encode()).decode().rstrip("=")


def decode_cursor(text: str, order: str) -> tuple[TimeRange, LastTrace]:
    """Returns the first page's time range (so that `now` stays what it was), and the last trace. Raises ApiError."""
    try:
        body = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        cursor_order, start, end, value, trace_id = body
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise _not_a_cursor() from None
    numbers = (start, end, value)
    if not all(type(n) is int and -_LIMIT <= n < _LIMIT for n in numbers) or not 0 <= start < end:
        raise _not_a_cursor()
    if (
        not isinstance(trace_id, str)
        or not re.fullmatch(r"[0-9a-f]{32}", trace_id)
        or not isinstance(cursor_order, str)
    ):
        raise _not_a_cursor()
    if cursor_order != order:
        if not re.fullmatch(r"[a-z_]{1,20}", cursor_order):
            raise _not_a_cursor()
        raise bad_request(
            "bad_cursor", f"the cursor is of a list with order={cursor_order}", f"give order={cursor_order} with it"
        )
    return TimeRange(start, end), LastTrace(value, trace_id)


def _not_a_cursor() -> ApiError:
    return bad_request("bad_cursor", "not a cursor", "give `next` of the previous page, or none for the first page")
