"""Answers of the API as text for a terminal."""

from collections.abc import Sequence
from typing import Any

_BAR = 10
_NAME = 60
_MAX_INDENT = 60
_UNITS = {"nanoseconds": ((3600e9, "h"), (60e9, "min"), (1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns")),
          "bytes": ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))}  # fmt: skip


def draw_tree(tree: dict[str, Any], min_percent: float) -> str:
    """A flame graph, indented: a line a frame with its share of the whole."""
    head = (
        f"{_scope(tree)}: {amount(tree['total'], tree['unit'])} in {tree['samples']} samples, {tree['stacks']} stacks"
    )
    return "\n".join([head, *_frames(tree, lambda row: _share(tree, row), min_percent), *_cut(tree)])


def draw_diff(diff: dict[str, Any], min_percent: float) -> str:
    """Both shares of a frame, and how many points it has more than in the baseline."""
    unit = diff["unit"]
    total, before = diff["total"], diff["baseline_total"]
    head = (
        f"{_scope(diff)}: {amount(total, unit)}, baseline {diff['baseline_selector']}: {amount(before, unit)}"
        + ("; shares of each side's own total" if diff["relative"] else "; shares of the larger total")
        + "\n   now    was   more"
    )
    whole = max(total * diff["scale"], before * diff["baseline_scale"], 1)

    def shares(row: int) -> tuple[float, float]:
        nodes = diff["nodes"]
        now = nodes["total"][row] * diff["scale"] / whole * 100
        return now, nodes["baseline_total"][row] * diff["baseline_scale"] / whole * 100

    def share(row: int) -> tuple[float, str]:
        now, was = shares(row)
        return max(now, was), f"{now:5.1f}% {was:5.1f}% {now - was:+6.1f}"

    return "\n".join([head, *_frames(diff, share, min_percent), *_cut(diff)])


def draw_top(top: dict[str, Any]) -> str:
    total = top["total"] or 1
    unit = top["unit"]
    rows = [
        (
            amount(row["flat"], unit), f"{row['flat'] / total:.1%}",
            amount(row["cumulative"], unit), f"{row['cumulative'] / total:.1%}",
            printable(row.get("name") or row["module"]), printable(row["module"].rsplit("/", 1)[-1]),
        )
        for row in top["top"]
    ]  # fmt: skip
    rest = top["rest"]
    more = [f"{rest['rows']} more rows: flat {amount(rest['flat'], unit)}"] if rest["rows"] else []
    head = f"{_scope(top)}: {amount(top['total'], unit)} in {top['samples']} samples"
    return "\n".join([head, *_table(("flat", "", "cumulative", "", "name", "module"), rows, 4), *more])


def draw_traces(traces: dict[str, Any]) -> str:
    rows = [
        (
            amount(t["thread_cpu_ns"]), amount(t["sampled_cpu_ns"]), str(t["samples"]),
            t["trace_id"], printable(t["service"]), printable(t["operation"]),
        )
        for t in traces["traces"]
    ]  # fmt: skip
    if not rows:
        return "no requests with CPU in this time; a service shows up when it uses icestream.tracing"
    return "\n".join(_table(("thread CPU", "sampled CPU", "samples", "trace", "service", "operation"), rows, 3))


def draw_trace(trace: dict[str, Any]) -> str:
    head = (
        f"trace {trace['trace_id']}: {amount(trace['thread_cpu_ns'])} thread CPU, "
        f"{amount(trace['sampled_cpu_ns'])} sampled CPU in {trace['samples']} samples"
    )
    rows = [
        (
            amount(s["thread_cpu_ns"]), amount(s["sampled_cpu_ns"]), str(s["samples"]),
            s["span_id"] or "(no span)", printable(s["service"]), printable(s["name"]),
        )
        for s in trace["spans"]
    ]  # fmt: skip
    hosts = ", ".join(f"{printable(host['host_id'])} {amount(host['thread_cpu_ns'])}" for host in trace["hosts"])
    return "\n".join(
        [head, *_table(("thread CPU", "sampled CPU", "samples", "span", "service", "name"), rows, 3), f"hosts: {hosts}"]
    )


def amount(value: int, unit: str = "nanoseconds") -> str:
    """A value in the largest unit that it has one of."""
    for size, name in _UNITS.get(unit, ()):
        if abs(value) >= size:
            return f"{value / size:.3g} {name}" if size > 1 else f"{value} {name}"
    return "0" if value == 0 else f"{value} {unit}"


def printable(text: str) -> str:
    """Without control characters: names come from the programs profiled, and a terminal obeys what it prints."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _frames(tree: dict[str, Any], share: Any, min_percent: float) -> list[str]:
    """Depth first, heaviest child first (the order of the answer)."""
    nodes, strings, names = tree["nodes"], tree["strings"], tree["functions"]["name"]
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
        name = printable(strings[names[nodes["function"][row]]])
        name = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
        lines.append(f"{text}  {' ' * min(depth, _MAX_INDENT)}{name}")
        stack += [(child, depth + 1) for child in reversed(children[row])]
    return lines


def _share(tree: dict[str, Any], row: int) -> tuple[float, str]:
    percent = 100 * tree["nodes"]["total"][row] / (tree["total"] or 1)
    full = max(0, min(_BAR, round(percent * _BAR / 100)))
    return (
        percent,
        f"{percent:5.1f}% {'█' * full}{'·' * (_BAR - full)} {amount(tree['nodes']['total'][row], tree['unit']):>9}",
    )


def _cut(tree: dict[str, Any]) -> list[str]:
    cut = tree["cut"]
    return [f"cut: {cut['nodes']} frames with {amount(cut['value'], tree['unit'])}"] if cut["nodes"] else []


def _scope(answer: dict[str, Any]) -> str:
    return printable(answer.get("selector") or f"trace {answer.get('trace_id', '')}")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], right: int) -> list[str]:
    """Columns; the first `right` are numbers."""
    every = [head, *rows]
    widths = [max(len(row[i]) for row in every) for i in range(len(head))]
    return [
        "  ".join(
            cell.rjust(w) if i < right else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in every
    ]
