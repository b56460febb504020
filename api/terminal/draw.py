"""Answers of the API as text for a terminal."""

from collections.abc import Sequence
from typing import Any

from api.terminal.places import Function, places
from icestream.process.printable import printable
from icestream.times import format_unix_nano

_BAR = 10
_NAME = 60
_MAX_INDENT = 60
_UNITS = {"nanoseconds": ((3600e9, "h"), (60e9, "min"), (1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns")),
          "bytes": ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))}  # fmt: skip


def draw_tree(tree: dict[str, Any], min_percent: float) -> str:
    """A flame graph as indented text: one line for each frame, with its share of the total."""
    head = (
        f"{_scope(tree)}: {amount(tree['total'], tree['unit'])} in {tree['samples']} samples, {tree['stacks']} stacks"
    )
    return "\n".join([head, *_frames(tree, lambda row: _share(tree, row), min_percent), *_cut(tree)])


_SHARES = {
    "request": "shares of the CPU of one request, of the side where it is larger",
    "share": "shares of each side's own total",
    "value": "shares of the larger total",
}


def draw_diff(diff: dict[str, Any], min_percent: float) -> str:
    """A diff as indented text: a frame's share now and in the baseline, and the difference in percentage points."""
    unit = diff["unit"]
    total, before = diff["total"], diff["baseline_total"]
    head = (
        f"{_scope(diff)}: {amount(total, unit)}, baseline {diff['baseline_selector']}: {amount(before, unit)}"
        + f"; {_SHARES[diff['scaling']]}"
        + "\n   now    was   more"
        + ("   (~: the samples do not support a change)" if diff["nodes"]["changed"] else "")
    )
    larger = max(total * diff["scale"], before * diff["baseline_scale"], 1)

    def shares(row: int) -> tuple[float, float]:
        nodes = diff["nodes"]
        now = nodes["total"][row] * diff["scale"] / larger * 100
        return now, nodes["baseline_total"][row] * diff["baseline_scale"] / larger * 100

    def share(row: int) -> tuple[float, str]:
        now, was = shares(row)
        changed = diff["nodes"]["changed"]
        more = f"{now - was:+6.1f}" if changed is None or changed[row] else f"{'~':>6}"
        return max(now, was), f"{now:5.1f}% {was:5.1f}% {more}"

    return "\n".join([head, *_frames(diff, share, min_percent), *_cut(diff)])


def draw_sandwich(answer: dict[str, Any], min_percent: float) -> str:
    """The callers and the callees of a function, each as a tree that starts with the function."""
    unit, whole = answer["unit"], answer["of_total"] or 1
    head = (
        f"{_scope(answer)}: {printable(answer['function'])} is in {amount(answer['total'], unit)}"
        f" ({answer['total'] / whole:.1%}), {answer['samples']} samples"
    )
    lines = [head]
    for title, side in (("called by", "callers"), ("calls", "callees")):
        tree = answer[side] | {"total": answer["total"], "unit": unit}
        lines += ["", f"{title}:", *_frames(tree, lambda row, tree=tree: _share(tree, row), min_percent), *_cut(tree)]
    return "\n".join(lines)


def draw_top(top: dict[str, Any]) -> str:
    """A table of functions, lines, files, modules or addresses."""
    total = top["total"] or 1
    unit = top["unit"]
    beside = places([(row["name"], row["module"], row["file"]) for row in top["top"]], with_module=True)
    rows = [
        (
            amount(row["flat"], unit), f"{row['flat'] / total:.1%}",
            amount(row["cumulative"], unit), f"{row['cumulative'] / total:.1%}",
            printable(row["name"]), printable(place),
        )
        for row, place in zip(top["top"], beside, strict=True)
    ]  # fmt: skip
    rest = top["rest"]
    more = [f"{rest['rows']} more rows: {amount(rest['flat'], unit)} flat"] if rest["rows"] else []
    head = f"{_scope(top)}: {amount(top['total'], unit)} in {top['samples']} samples"
    return "\n".join([head, *table(("flat", "", "cumulative", "", "name", "module"), rows, 4), *more])


def draw_timeline(timeline: dict[str, Any]) -> str:
    """A table with a row for each step and a column for each group of labels."""
    unit, groups = timeline["unit"], timeline["groups"]
    heads = [", ".join(f"{name}={value}" for name, value in group["labels"].items()) or "sum" for group in groups]
    columns = [group["values"] for group in groups]
    if timeline["rest"] is not None:
        heads.append(f"{timeline['rest']['groups']} more")
        columns.append(timeline["rest"]["values"])
    rows = [
        (format_unix_nano(unix_milli * 10**6), *(amount(values[step], unit) for values in columns))
        for step, unix_milli in enumerate(timeline["times_unix_milli"])
    ]
    return "\n".join([_scope(timeline), *table(("start", *map(printable, heads)), rows, len(heads) + 1)])


def draw_completeness(answer: dict[str, Any]) -> str:
    """A table of holes."""
    head = f"{answer['windows']} windows of {answer['hosts']} hosts"
    if known_from := answer["known_from"]:
        head = f"{head} (what is missing before {known_from} is not known)"
    if not answer["holes"]:
        if not answer["hosts"]:
            return f"{head}: nothing is known of this range"
        return f"{head}: complete" if answer["complete"] else f"{head}: nothing is known to be missing"
    rows = [
        (
            str(hole["count"]), f"{hole['seconds']:.0f} s" if hole["seconds"] else "",
            "" if hole["missing_cpu_ns"] is None else amount(hole["missing_cpu_ns"]),
            hole["kind"], printable(hole["host"] or hole["host_id"]), hole["first"], hole["last"],
            printable(hole["detail"]),
        )
        for hole in answer["holes"]
    ]  # fmt: skip
    more = [f"{answer['more']} more"] if answer["more"] else []
    names = ("count", "for", "missing CPU", "kind", "host", "first", "last", "detail")
    missing = f"{amount(answer['missing_cpu_ns'])} of CPU missing"
    if any(hole["missing_cpu_ns"] is None for hole in answer["holes"]):
        missing = f"at least {missing}" if answer["missing_cpu_ns"] else "it is not known how much CPU is missing"
    return "\n".join([f"{head}: {missing}", *table(names, rows, 3), *more])


def amount(value: int, unit: str = "nanoseconds") -> str:
    """A value in the largest unit of which it is at least one."""
    for size, name in _UNITS.get(unit, ()):
        if abs(value) >= size:
            return f"{value / size:.3g} {name}" if size > 1 else f"{value} {name}"
    return "0" if value == 0 else f"{value} {unit}"


def _frames(tree: dict[str, Any], share: Any, min_percent: float) -> list[str]:
    """Lines of frames, depth first, the heaviest child first (as in the answer)."""
    nodes, names = tree["nodes"], _names(tree)
    children: list[list[int]] = [[] for _ in nodes["parent"]]
    for row, parent in enumerate(nodes["parent"]):
        if parent >= 0:
            children[parent].append(row)
    lines = []
    stack = [(0, 0)]
    while stack:
        row, depth = stack.pop()
        percent, text = share(row)
        if percent < min_percent and row:
            continue
        lines.append(f"{text}  {' ' * min(depth, _MAX_INDENT)}{names[nodes['function'][row]]}")
        stack += [(child, depth + 1) for child in reversed(children[row])]
    return lines


def functions_in(tree: dict[str, Any]) -> list[Function]:
    """The functions of a tree or a diff."""
    strings, functions = tree["strings"], tree["functions"]
    texts = ([strings[row] for row in functions[column]] for column in ("name", "module", "file"))
    return list(zip(*texts, strict=True))


def _names(tree: dict[str, Any]) -> list[str]:
    """What each function is called; those of one name have beside it what tells them apart."""
    functions = functions_in(tree)
    shown = []
    for (name, _, _), place in zip(functions, places(functions), strict=True):
        text = printable(name)
        text = text if len(text) <= _NAME else f"{text[: _NAME - 1]}…"
        shown.append(f"{text} ({printable(place)})" if place else text)
    return shown


def _share(tree: dict[str, Any], row: int) -> tuple[float, str]:
    percent = 100 * tree["nodes"]["total"][row] / (tree["total"] or 1)
    filled = max(0, min(_BAR, round(percent * _BAR / 100)))
    return (
        percent,
        f"{percent:5.1f}% {'█' * filled}{'·' * (_BAR - filled)} {amount(tree['nodes']['total'][row], tree['unit']):>9}",
    )


def _cut(tree: dict[str, Any]) -> list[str]:
    cut = tree["cut"]
    return [f"cut: {cut['nodes']} frames with {amount(cut['value'], tree['unit'])}"] if cut["nodes"] else []


def _scope(answer: dict[str, Any]) -> str:
    scope = printable(answer.get("selector") or f"trace {answer.get('trace_id', '')}")
    own = ", own code" if answer.get("frames") == "own" else ""
    return f"{scope}, averaged over time{own}" if answer.get("aggregation") == "average" else f"{scope}{own}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: int) -> list[str]:
    """Lines of a table. The first `right` columns are aligned to the right."""
    lines = [head, *rows]
    widths = [max(len(row[i]) for row in lines) for i in range(len(head))]
    return [
        "  ".join(
            cell.rjust(w) if i < right else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in lines
    ]
