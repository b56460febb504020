"""What the answer about a request says of its time: CPU, waits by reason, and what is not explained."""

import math
from collections import Counter, defaultdict
from typing import Any

from api.http.app_state import ApiState
from api.queries.traces.request_time import (
    Activity,
    RequestWaits,
    SpanTime,
    duration_of,
    read_activity,
    read_shares,
    read_waits,
)
from api.queries.traces.trace_cpu import TraceCpu
from api.statistics.estimates import CONFIDENCE, deviations
from api.views.wait_reasons import reasons

_Z = deviations(CONFIDENCE, 1)


def request_time(state: ApiState, cpu: TraceCpu) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """`time` of the answer, and what is added to each span (by span ID). Raises ApiError."""
    of = duration_of(cpu)
    activity = read_activity(state.database, cpu.trace_id, of)
    waits = read_waits(state.database, cpu.trace_id, activity.services, state.settings.api_max_stacks)
    hosts = [host.key for host in cpu.hosts]
    shares = read_shares(state.database, hosts, cpu.time_range)
    by_span: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for span, reason, value in zip(
        waits.span_ids, reasons(state.stacks.functions_of(waits.stack_ids)), waits.values.tolist(), strict=True
    ):
        by_span[span][reason] += value
    profiled = bool(shares or waits.samples)
    duration_ns = of.end_unix_nano - of.start_unix_nano
    threads = _threads(activity, duration_ns, cpu)
    followed_of = max(shares.values(), default=1)
    rest = threads["thread_time_ns"] - threads["cpu_ns"]
    low, high = _interval(waits, followed_of, max(rest, 0))
    whole = {
        "duration_ns": duration_ns,
        **threads,
        "waits": _ordered(sum(by_span.values(), Counter())) if profiled else None,
        "off_cpu_low_ns": low,
        "off_cpu_high_ns": high,
        "followed_of": followed_of,
        "unprofiled_hosts": sorted(set(hosts) - set(shares)) if shares or not profiled else [],
        "unexplained_ns": rest - waits.total,
    }
    spans = {
        span: {
            "thread_time_ns": activity.spans.get(span, SpanTime()).thread_time_ns,
            "waits": _ordered(by_span[span]) if profiled else None,
        }
        for span in {*activity.spans, *by_span}
    }
    return whole, spans


def _threads(activity: Activity, duration_ns: int, cpu: TraceCpu) -> dict[str, int]:
    """Without activity, the threads are not known: then their time is taken to be the duration."""
    if not activity.threads:
        sampled = sum(each.cpu_ns for each in cpu.services)
        return {"thread_time_ns": duration_ns, "threads": 0, "no_thread_ns": 0, "cpu_ns": sampled}
    return {
        "thread_time_ns": sum(span.thread_time_ns for span in activity.spans.values()),
        "threads": activity.threads,
        "no_thread_ns": max(duration_ns - activity.covered_ns, 0),
        "cpu_ns": sum(span.cpu_ns for span in activity.spans.values()),
    }


def _interval(waits: RequestWaits, followed_of: int, most: int) -> tuple[int, int]:
    """The 95 % confidence interval of all waits: each was followed by chance, on its own. Together they are at most
    what the threads did beside their CPU, `most`."""
    if followed_of == 1:
        return waits.total, waits.total
    if not waits.samples:
        return 0, most
    error = math.ceil(_Z * math.sqrt(waits.squares * (1 - 1 / followed_of)))
    low = min(max(waits.total - error, 0), most)
    return low, min(waits.total + error, most)


def _ordered(sums: Counter[str]) -> dict[str, int]:
    return dict(sums.most_common())
