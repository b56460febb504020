"""Trace and span IDs: hex in the API, bytes in the tables."""

import re

from api.errors import bad_request
from api.queries.conditions import Where

_HEX = re.compile(r"[0-9a-f]{32}")
NO_SPAN = "0" * 16
NO_TRACE = "0" * 32


def parse_trace_id(text: str) -> str:
    """32 lower-case hex digits. Raises ApiError."""
    trace_id = text.strip().lower().replace("-", "")
    if not _HEX.fullmatch(trace_id) or trace_id == NO_TRACE:
        raise bad_request(
            "bad_trace_id", f"not a trace ID: {text[:60]!r}", "32 hex digits, as in 4bf92f3577b34da6a3ce929d0e0e4736"
        )
    return trace_id


def bind_trace_id(where: Where, trace_id: str) -> str:
    """A constant for comparisons with `trace_id`."""
    return f"toFixedString(unhex({where.bind(trace_id, 'String')}), 16)"


def bind_trace_ids(where: Where, trace_ids: list[str]) -> str:
    """A constant for `trace_id IN`."""
    return f"arrayMap(x -> toFixedString(unhex(x), 16), {where.bind(trace_ids, 'Array(String)')})"
