"""The outcome of a comparison as text for a terminal or a log of CI."""

from typing import Any

from api.statistics.estimates import CONFIDENCE, Estimate
from api.terminal.draw import functions_in, table
from api.terminal.gate import Change, Gate
from api.terminal.places import Function, places
from icestream.process.printable import printable

_OF = {"share": "percent of each side's total", "time": "percent of the baseline's CPU per time"}


def draw_gate(gate: Gate, diff: dict[str, Any]) -> str:
    """The verdict, the whole, and a table of what grew by more than the limit."""
    over = [change for change in gate.changes if change.over]
    unsure = [change for change in gate.changes if not change.over]
    limit = f"{gate.limit_percent:g} %"
    lines = [
        f"{_side(diff, '')}; baseline {_side(diff, 'baseline_')}",
        f"the whole: {gate.now_cpus:.3g} CPUs in use, was {gate.before_cpus:.3g}: {_with_bounds(gate.whole_percent)} %"
        + ("" if gate.compare == "time" else " (not checked: functions are compared by their share)"),
    ]
    if gate.failed:
        reasons = ["the whole"] * gate.whole_over + [f"{len(over)} rows of functions"] * bool(over)
        lines.append(f"FAILED: {' and '.join(reasons)} grew by more than {limit}")
    else:
        lines.append(f"passed: nothing grew by more than {limit} as far as the samples tell")
    note = f"{_OF[gate.compare]}; {CONFIDENCE:.0%} confidence intervals for {gate.comparisons} comparisons together"
    functions = functions_in(diff)
    place_of = dict(zip(functions, places(functions, with_module=True), strict=True))
    lines += _section(f"over the limit ({note}):", over, place_of)
    unsupported = f"perhaps over the limit, which the number of samples does not support ({note}):"
    lines += _section(unsupported, unsure, place_of)
    return "\n".join(lines)


def _side(diff: dict[str, Any], prefix: str) -> str:
    return f"{printable(diff[f'{prefix}selector'])}, {diff[f'{prefix}samples']} samples"


def _section(head: str, changes: list[Change], place_of: dict[Function, str]) -> list[str]:
    if not changes:
        return []
    rows = [
        (
            f"{change.before_percent:.1f}", f"{change.now_percent:.1f}", _with_bounds(change.change_percent),
            change.measure, printable(change.name), printable(place_of[change.name, change.module, change.file]),
        )
        for change in changes
    ]  # fmt: skip
    return ["", head, *table(("was", "now", "change", "", "function", "module"), rows, 3)]


def _with_bounds(change: Estimate) -> str:
    return f"{change.value:+.1f} ({change.low:+.1f} to {change.high:+.1f})"
