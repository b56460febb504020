"""What the demo saw: asked of the API, and printed."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from icestream.times import format_unix_nano
from standalone.demo.asking import ask, ask_text, quantile, read_metrics

SHOP = '{service="shop"}'

_REQUESTS = 10
_PATH = 7  # frames shown
_GLUE = re.compile(r"^_?Py|vectorcall|VECTORCALL|^(type_call|slot_|gen_|partial_call|task_step|context_run)")
"""C functions by which CPython calls another: on the path, but no news."""
_TOP_FUNCTIONS = 3
_PAGE = 500
_MAX_NODES = 200_000


@dataclass(frozen=True)
class Request:
    """One request; CPU in seconds."""

    trace_id: str
    operation: str
    sampled_cpu_s: float
    thread_cpu_s: float
    top_functions: list[str]
    hottest_path: list[str]  # from outermost to where it divides: what at least half of the CPU was spent in


@dataclass(frozen=True)
class Result:
    """What `icestream demo --json` prints."""

    profiler: str
    samples: int
    stacks: int
    frames: int
    frames_named: int
    freshness_p95_s: float | None
    sampled_cpu_s: float
    thread_cpu_s: float
    requests: list[Request]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Window:
    """A time range of the API at HOST:PORT."""

    address: str
    start_unix_nano: int
    end_unix_nano: int

    def ask(self, path: str, **query: Any) -> Any:
        return ask(self.address, path, **self._times(), **query)

    def ask_text(self, path: str, **query: Any) -> str:
        return ask_text(self.address, path, **self._times(), **query)

    def _times(self) -> dict[str, str]:
        return {"start": format_unix_nano(self.start_unix_nano), "end": format_unix_nano(self.end_unix_nano)}


def measure(window: Window, profiler: str) -> Result:
    """Asks for everything. Raises AskError."""
    tree = window.ask("/api/v1/merge", format="tree", max_nodes=_MAX_NODES)
    frames, named = count_frames(tree)
    traces = list(_traces(window))
    freshness = quantile(read_metrics(window.address).get("icestream_sinks_freshness_seconds_bucket", []), 0.95)
    return Result(
        profiler=profiler,
        samples=tree["samples"],
        stacks=tree["stacks"],
        frames=frames,
        frames_named=named,
        freshness_p95_s=freshness and round(freshness, 3),
        sampled_cpu_s=sum(trace["sampled_cpu_ns"] for trace in traces) / 10**9,
        thread_cpu_s=sum(trace["thread_cpu_ns"] for trace in traces) / 10**9,
        requests=[_request(window, trace) for trace in traces[:_REQUESTS]],
    )


def count_frames(tree: dict[str, Any]) -> tuple[int, int]:
    """Different functions of a tree, and how many of them have a name."""
    functions = tree["functions"]
    ours = tree["kinds"].index("icestream")
    named = [name for name, kind in zip(functions["named"], functions["kind"], strict=True) if kind != ours]
    return len(named), sum(named)


def _traces(window: Window) -> Iterator[dict[str, Any]]:
    """All requests of the shop, heaviest by the threads' clocks first."""
    cursor = None
    while True:
        page = window.ask("/api/v1/traces", selector=SHOP, order="thread_cpu", limit=_PAGE, cursor=cursor)
        yield from page["traces"]
        cursor = page["next"]
        if cursor is None:
            return


def _request(window: Window, trace: dict[str, Any]) -> Request:
    text = window.ask_text(f"/api/v1/traces/{trace['trace_id']}/cpu", format="collapsed")
    leaves: Counter[str] = Counter()
    paths: Counter[tuple[str, ...]] = Counter()
    for line in text.splitlines():
        stack, _, value = line.rpartition(" ")
        leaves[stack.rpartition(";")[2]] += int(value)
        frames = tuple(stack.split(";"))
        for depth in range(1, len(frames) + 1):
            paths[frames[:depth]] += int(value)
    common = sorted((path for path, value in paths.items() if 2 * value >= leaves.total()), key=len)
    return Request(
        trace_id=trace["trace_id"],
        operation=trace["operation"],
        sampled_cpu_s=trace["sampled_cpu_ns"] / 10**9,
        thread_cpu_s=trace["thread_cpu_ns"] / 10**9,
        top_functions=[name for name, _ in leaves.most_common(_TOP_FUNCTIONS)],
        hottest_path=list(common[-1]) if common else [],
    )


def as_text(result: Result) -> str:
    """The same for people."""
    named = 100 * result.frames_named / result.frames if result.frames else 0
    fresh = "unknown" if result.freshness_p95_s is None else f"{result.freshness_p95_s:.2f} s"
    lines = [
        f"samples    {result.samples:,} in {result.stacks:,} different stacks",
        f"functions  {result.frames:,}, of which {result.frames_named:,} have a name ({named:.0f} %)",
        f"freshness  {fresh} from a batch's publishing to its being found, for 95 %",
        f"requests   {result.thread_cpu_s:.2f} s of thread CPU, {result.sampled_cpu_s:.2f} s of sampled CPU",
        "",
        f"{'trace':32}  {'operation':16} {'thread':>8} {'sampled':>8}  hottest functions; path of at least half of it",
    ]
    for r in result.requests:
        lines += [
            f"{r.trace_id:32}  {r.operation[:16]:16} {r.thread_cpu_s * 1000:5.0f} ms {r.sampled_cpu_s * 1000:5.0f} ms"
            f"  {', '.join(r.top_functions)}",
            f"{'':34}{' > '.join(_told(r.hottest_path))}",
        ]
    return "\n".join(lines)


def _told(path: list[str]) -> list[str]:
    """The end of a path, each function once."""
    return list(dict.fromkeys(name for name in path if not _GLUE.search(name)))[-_PATH:]
