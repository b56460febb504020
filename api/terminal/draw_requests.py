"""Requests as text for a terminal."""

import shlex
from typing import Any

from api.terminal.draw import amount, table
from icestream.process.printable import printable
from icestream.times import format_unix_nano

_HEADS = ("CPU", "sampled CPU", "95 % from", "to", "samples")
_AT_ONCE = 1.01
"""With more thread time for its duration than this, several threads worked for a request at a time."""


def draw_traces(traces: dict[str, Any]) -> str:
    """A table of requests."""
    rows = [
        (*_cpu(trace), *_times(trace), trace["trace_id"], printable(trace["service"]), printable(trace["operation"]))
        for trace in traces["traces"]
    ]
    if not rows:
        return "no request used CPU in this time; requests show up if their service uses icestream.tracing"
    heads = (*_HEADS, "start", "duration")
    listed = table((*heads, "trace", "service", "operation"), rows, len(heads))
    return "\n".join([*listed, *_missing_line(traces), *thinned_line(traces)])


def _missing_line(traces: dict[str, Any]) -> list[str]:
    """That of very many requests, lighter ones may be missing."""
    above = traces["complete_above_ns"]
    if above is None:
        return []
    return [f"of so many requests, those may be missing that used at most {amount(above)} in each minute"]


def thinned_line(answer: dict[str, Any]) -> list[str]:
    """That old days have fewer requests."""
    if answer["thinned_until"] is None:
        return []
    return [
        f"before {answer['thinned_until'][:10]}, light requests are no longer kept: operations with many requests have"
        " their heaviest and slowest ones, and one in a hundred"
    ]


def draw_trace(trace: dict[str, Any]) -> str:
    """The CPU of one request, and a table of its spans."""
    low, high = trace["sampled_cpu_low_ns"], trace["sampled_cpu_high_ns"]
    interval = "" if low is None else f" (95 %: {amount(low)} to {amount(high)})"
    head = (
        f"trace {trace['trace_id']}: {amount(trace['cpu_ns'])} CPU, {amount(trace['thread_cpu_ns'])} thread CPU, "
        f"{amount(trace['sampled_cpu_ns'])} sampled CPU{interval} in {trace['samples']} samples"
    )
    rows = [
        (
            *_cpu(span), span["span_id"] or "(no span)", printable(span["service"]), printable(_named(span)),
            ", ".join(wait_texts(span["waits"])),
        )
        for span in trace["spans"]
    ]  # fmt: skip
    hosts = ", ".join(f"{printable(host['host_id'])} {amount(host['cpu_ns'])}" for host in trace["hosts"])
    spans = table((*_HEADS, "span", "service", "name", "waits"), rows, len(_HEADS))
    more = [f"{trace['more_spans']} more spans"] if trace["more_spans"] else []
    thinned = ["its thread CPU and most of its spans are no longer kept; its samples are"] if trace["thinned"] else []
    time = [] if trace["time"] is None else time_lines(trace["time"])
    return "\n".join([head, *time, *thinned, *_few(trace), *spans, *more, f"hosts: {hosts}"])


def time_lines(time: dict[str, Any]) -> list[str]:
    """What the time of a request was, as a sum; how sure that is; and how to profile its waits if they are not."""
    duration, unexplained = time["duration_ns"], time["unexplained_ns"]
    alone = time["thread_time_ns"] <= _AT_ONCE * (duration - time["no_thread_ns"])
    parts = [f"{amount(time['cpu_ns'])} CPU", *wait_texts(time["waits"])]
    if alone and time["no_thread_ns"]:
        parts.append(f"{amount(time['no_thread_ns'])} on no thread")
    if unexplained > 0:
        parts.append(f"{amount(unexplained)} unexplained")
    of = amount(duration)
    if not alone:
        of += f", {amount(time['thread_time_ns'])} of {time['threads']} thread{'' if time['threads'] == 1 else 's'}"
    lines = [f"{of} = {' + '.join(parts)}"]
    if (followed_of := time["followed_of"]) > 1:
        interval = f"{amount(time['off_cpu_low_ns'])} to {amount(time['off_cpu_high_ns'])}"
        lines.append(f"one wait in {followed_of} was followed and stands for all: waits are {interval} (95 %)")
    elif unexplained < 0 and time["threads"] == 0:
        lines.append("that is more than its duration: it ran on several threads")
    if hosts := time["unprofiled_hosts"]:
        names = ", ".join(map(printable, hosts))
        lines.append(f"waits are not profiled on {names}: icestream collect --off-cpu 1 profiles them")
    return lines


def wait_texts(waits: dict[str, int] | None) -> list[str]:
    """The waits of a request, as in `180 ms lock`."""
    return [f"{amount(value)} {reason.replace('_', ' ')}" for reason, value in (waits or {}).items()]


def _times(trace: dict[str, Any]) -> tuple[str, str]:
    start, duration = trace["start_unix_nano"], trace["duration_ns"]
    return "" if start is None else format_unix_nano(start), "" if duration is None else amount(duration)


def _cpu(sums: dict[str, Any]) -> tuple[str, ...]:
    low, high = sums["sampled_cpu_low_ns"], sums["sampled_cpu_high_ns"]
    bounds = ("", "") if low is None else (amount(low), amount(high))
    return amount(sums["cpu_ns"]), amount(sums["sampled_cpu_ns"]), *bounds, str(sums["samples"])


def _named(span: dict[str, Any]) -> str:
    return f"{span['name']} (error)" if span["status"] == "error" else str(span["name"])


def _few(trace: dict[str, Any]) -> list[str]:
    """That a request has too few samples for a graph, and where the graph of requests like it is."""
    if not trace["few_samples"]:
        return []
    expected = trace["expected_samples"]
    why = "" if expected is None else f", of {expected:.3g} that are expected"
    like = trace["like"]
    selector = shlex.quote(printable(like["selector"]))
    return [
        f"few samples{why}: the graph below shows chance; that of requests like this one:",
        f"  icestream query merge --selector {selector} --start {like['start']} --end {like['end']}",
    ]
