"""The operations of services, and what their slow requests do, as tables."""

from typing import Any

from api.terminal.draw import amount, table
from api.terminal.draw_comparison import draw_cost
from api.terminal.draw_requests import thinned_line, wait_texts
from api.terminal.places import places
from icestream.process.printable import printable

_HEAD = (
    "requests", "was", "per s", "errors %", "thread CPU", "sampled CPU", "share", "CPU a request", "change %",
    "CPU p50", "p95", "p99", "time p50", "p95", "p99", "service", "operation",
)  # fmt: skip


def draw_operations(answer: dict[str, Any]) -> str:
    """A row for each operation, and one for what belongs to none; with a column for each label by which they are
    split."""
    names = sorted({name for row in (*answer["operations"], *answer["unattributed"]) for name in row["labels"]})

    def labels(row: dict[str, Any]) -> list[str]:
        return [printable(row["labels"].get(name, "")) for name in names]

    rows = [(*_operation(row), *labels(row)) for row in answer["operations"]]
    rows += [
        (*[""] * 4, *_sums(row), *[""] * 8, printable(row["service"]), "(unattributed)", *labels(row))
        for row in answer["unattributed"]
    ]
    if not rows:
        return "no operations in this time; they show up if their service uses icestream.tracing"
    more = [f"{answer['count'] - len(answer['operations'])} more"] if answer["next"] is not None else []
    return "\n".join([*table((*_HEAD, *map(printable, names)), rows, 15), *more])


def draw_slow(answer: dict[str, Any]) -> str:
    """What a slow request spends in each function, and a fast one; what differs most comes first."""
    head = [
        f"{name}: {group['requests']} requests of {amount(group['mean_duration_ns'])} and"
        f" {' + '.join([amount(group['mean_cpu_ns']) + ' CPU', *wait_texts(group['mean_waits_ns'])])} on average"
        for name, group in (("slow", answer["slow"]), ("fast", answer["fast"]))
    ]
    if answer["explained"] is not None:
        head.append(f"off-CPU time is {max(answer['explained'], 0):.0%} of what the slow ones take longer")
    unit, differences = answer["unit"], answer["differences"]
    beside = places([(row["name"], row["module"], row["file"]) for row in differences], with_module=True)
    rows = [
        (
            *(amount(round(row[f"{side}flat_per_request"]), unit) for side in ("", "baseline_")),
            *(amount(round(row[f"{side}cumulative_per_request"]), unit) for side in ("", "baseline_")),
            "~" if row["changed"] is False else "", printable(row["name"]), printable(place),
        )
        for row, place in zip(differences, beside, strict=True)
    ]  # fmt: skip
    names = ("flat slow", "fast", "cumulative slow", "fast", "", "function (of one request)", "module")
    unsure = (
        ["~: the samples do not support that the flat values differ, or explain little of the durations"]
        if any(row[4] for row in rows)
        else []
    )
    return "\n".join([*head, *thinned_line(answer), *table(names, rows, 5), *unsure])


def _operation(row: dict[str, Any]) -> tuple[str, ...]:
    percentiles = (row[f"{name}_{what}_ns"] for what in ("cpu", "duration") for name in ("p50", "p95", "p99"))
    return (
        str(row["requests"]), str(row["previous_requests"]), f"{row['requests_per_second']:.3g}",
        "" if row["error_rate"] is None else f"{100 * row['error_rate']:.3g}", *_sums(row), *_change(row["cpu_change"]),
        *("" if value is None else amount(value) for value in percentiles),
        printable(row["service"]), printable(row["operation"]),
    )  # fmt: skip


def _sums(row: dict[str, Any]) -> tuple[str, ...]:
    return amount(row["thread_cpu_ns"]), amount(row["sampled_cpu_ns"]), f"{100 * row['share']:.1f}%"


def _change(cost: dict[str, Any] | None) -> tuple[str, str]:
    """The CPU of a request, and its change against the period before; "*" if that is sure."""
    if cost is None:
        return "", ""
    now, _, change = draw_cost(cost)
    if cost["status"] in ("new", "gone"):
        return now, cost["status"]
    return now, f"{change} *" if cost["status"] == "changed" else change
