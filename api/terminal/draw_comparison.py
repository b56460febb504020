"""What a request costs against a baseline, as text for a terminal."""

from typing import Any

from api.terminal.draw import amount, table
from api.terminal.places import places
from icestream.process.printable import printable

_HEAD = (
    "", "requests", "was", "per s", "was", "CPU", "was", "change %", "duration", "was", "change %", "errors %", "was",
    "service", "operation",
)  # fmt: skip


def draw_comparison(answer: dict[str, Any]) -> str:
    """The sentence, a row for each operation, and the functions that changes went to."""
    lines = [
        f"{printable(answer['selector'])}, {answer['start']} to {answer['end']}",
        f"baseline {printable(answer['baseline_selector'])}, {answer['baseline_start']} to {answer['baseline_end']}",
        printable(answer["sentence"]),
    ]
    operations = answer["operations"]
    if not operations:
        return "\n".join(lines)
    lines += ["", *table(_HEAD, [_operation(row) for row in operations], 13)]
    if answer["count"] > len(operations):
        lines.append(f"{answer['count'] - len(operations)} more")
    for row in operations:
        lines += _functions(row)
    return "\n".join(lines)


def _operation(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["status"],
        *(str(row[f"{side}requests"] or "") for side in ("", "baseline_")),
        *(f"{row[f'{side}requests_per_second']:.3g}" for side in ("", "baseline_")),
        *draw_cost(row["cpu"]), *draw_cost(row["duration"]),
        *("" if rate is None else f"{100 * rate:.3g}" for rate in map(row["errors"].get, ("rate", "baseline_rate"))),
        printable(row["service"] or row["baseline_service"]), printable(row["operation"]),
    )  # fmt: skip


def draw_cost(cost: dict[str, Any]) -> tuple[str, str, str]:
    """A cost now and before, and its change in percent with the interval."""
    now, before = ("" if mean is None else amount(mean) for mean in (cost["mean_ns"], cost["baseline_mean_ns"]))
    if cost["change"] is None:
        return now, before, ""
    change, low, high = (100 * cost[name] for name in ("change", "change_low", "change_high"))
    return now, before, f"{change:+.1f} ({low:+.1f} to {high:+.1f})"


def _functions(row: dict[str, Any]) -> list[str]:
    """A table of the functions that the change of an operation went to; nothing if that was not asked for."""
    spread = row["went_to"]
    if not spread or not spread["functions"]:
        return []
    functions = spread["functions"]
    beside = places([(each["name"], each["module"], each["file"]) for each in functions], with_module=True)
    rows = [
        (
            amount(each["baseline_cpu_ns"]), amount(each["cpu_ns"]), _signed(each["change_ns"]),
            f"{_signed(each['change_low_ns'])} to {_signed(each['change_high_ns'])}{' *' if each['is_sure'] else '  '}",
            printable(each["name"]), printable(place),
        )
        for each, place in zip(functions, beside, strict=True)
    ]  # fmt: skip
    rows.append(("", "", _signed(spread["others_change_ns"]), "", f"({spread['others']} others)", ""))
    head = (
        f"{printable(row['operation'])}: CPU of one request in each function (*: surely changed), by"
        f" {spread['baseline_samples']} samples before and {spread['samples']} now"
    )
    return ["", head, *table(("was", "now", "change", "95 % interval", "function", "module"), rows, 4)]


def _signed(value: int) -> str:
    return f"{'-' if value < 0 else '+'}{amount(abs(value))}"
