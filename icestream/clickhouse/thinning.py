"""Which requests are kept of days that were thinned, for the thinning (sinks/requests/thin_requests.py) and for
queries."""

ONE_IN = 100
IS_SAMPLED = f"cityHash64(trace_id) % {ONE_IN} = 0"
"""Whether a trace is kept whatever its requests used: in all services and on all days the same."""
THINNED_DAYS = "SELECT day FROM thinned_days WHERE state IN ('thinning', 'thinned')"
"""The days of which requests may be missing: from the moment on at which the first row may be gone."""


def kept_traces(days: str) -> str:
    """Returns the condition that a trace is kept. `days`: the condition of `day` for the days that its requests may be
    of."""
    return f"({IS_SAMPLED} OR trace_id IN (SELECT trace_id FROM kept_traces WHERE {days}))"
