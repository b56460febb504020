"""The demo's report: what the API says about the web service's requests, as JSON and for people."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prometheus_client.samples import Sample

from api.terminal.client import Client
from icestream.http.metrics import parse_metrics
from icestream.times import format_unix_nano

SHOP = '{service="shop"}'

_REQUESTS = 10
_PATH_FRAMES = 7
_TOP_FUNCTIONS = 3
_TRACES_PER_PAGE = 500
_MAX_NODES = 200_000
_GLUE = re.compile(r"^_?Py|vectorcall|VECTORCALL|^(type_call|slot_|gen_|partial_call|task_step|context_run)")
"""Plumbing: C functions by which CPython calls another function; a path is easier to read without them."""


@dataclass(frozen=True)
class ReportedRequest:
    """One request; CPU in seconds."""

    trace_id: str
    operation: str
    sampled_cpu_s: float
    thread_cpu_s: float
    top_functions: list[str]
    hottest_path: list[str]
    """Functions from the outermost one to where the path divides: at least half of the CPU was spent in it."""


@dataclass(frozen=True)
class Report:
    """What `icestream demo --json` prints."""

    profiler: str
    """ebpf or recording."""
    samples: int
    stacks: int
    functions: int
    functions_named: int
    freshness_p95_s: float | None
    """Seconds from publishing a batch to finding it in queries, 95th percentile; None if nothing was measured."""
    sampled_cpu_s: float
    thread_cpu_s: float
    requests: list[ReportedRequest]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class QueryRange:
    """A time range that the API at HOST:PORT is asked about. Queries raise CommandError."""

    address: str
    start_unix_nano: int
    end_unix_nano: int

    @property
    def page(self) -> str:
        """The address of the web page."""
        return f"{self._url}/"

    def json(self, path: str, **query: Any) -> Any:
        return Client(self._url).json(path, self._times() | query)

    def stacks_of_trace(self, trace_id: str) -> str:
        """Returns the stacks of a request as collapsed text, whenever it ran."""
        return Client(self._url).read(f"/api/v1/traces/{trace_id}/cpu", {"format": "collapsed"}).decode()

    def tree(self, max_nodes: int = _MAX_NODES) -> dict[str, Any]:
        """Returns everything in the range merged, as the API's tree."""
        tree: dict[str, Any] = self.json("/api/v1/merge", format="tree", max_nodes=max_nodes)
        return tree

    @property
    def _url(self) -> str:
        return f"http://{self.address}"

    def _times(self) -> dict[str, str]:
        return {"start": format_unix_nano(self.start_unix_nano), "end": format_unix_nano(self.end_unix_nano)}


def make_report(profiled: QueryRange, profiler: str) -> Report:
    """Asks the API for everything in the report. Raises CommandError."""
    tree = profiled.tree()
    functions, named = count_functions(tree)
    traces = list(_traces(profiled))
    sampled_cpu_ns, thread_cpu_ns = _sums(traces)
    freshness_s = quantile(read_metrics(profiled.address).get("icestream_sinks_freshness_seconds_bucket", []), 0.95)
    return Report(
        profiler=profiler,
        samples=tree["samples"],
        stacks=tree["stacks"],
        functions=functions,
        functions_named=named,
        freshness_p95_s=freshness_s and round(freshness_s, 3),
        sampled_cpu_s=sampled_cpu_ns / 10**9,
        thread_cpu_s=thread_cpu_ns / 10**9,
        requests=[_request(profiled, trace) for trace in traces[:_REQUESTS]],
    )


def sum_requests(profiled: QueryRange) -> tuple[int, int]:
    """Returns the sampled CPU and the thread CPU of all requests of the shop, in nanoseconds. Raises CommandError."""
    return _sums(list(_traces(profiled)))


def _sums(traces: list[dict[str, Any]]) -> tuple[int, int]:
    return sum(trace["sampled_cpu_ns"] for trace in traces), sum(trace["thread_cpu_ns"] for trace in traces)


def count_functions(tree: dict[str, Any]) -> tuple[int, int]:
    """Returns how many different functions a tree has, and how many of them have a name."""
    functions = tree["functions"]
    ours = tree["kinds"].index("icestream")
    named = [name for name, kind in zip(functions["named"], functions["kind"], strict=True) if kind != ours]
    return len(named), sum(named)


def read_metrics(address: str) -> dict[str, list[Sample]]:
    """Returns the samples at /metrics of HOST:PORT, by name. Raises CommandError."""
    return parse_metrics(Client(f"http://{address}").read("/metrics", {}).decode())


def quantile(buckets: Sequence[Sample], q: float) -> float | None:
    """Returns a quantile of a histogram's buckets, summed over all label sets; None if the histogram is empty.

    It interpolates linearly between bounds. Values above the last finite bound count as that bound.
    """
    counts: dict[float, float] = {}
    for bucket in buckets:
        bound = float(bucket.labels["le"])
        counts[bound] = counts.get(bound, 0) + bucket.value
    bounds = sorted(counts)
    if not bounds or counts[bounds[-1]] == 0:
        return None
    rank = q * counts[bounds[-1]]
    low, below = 0.0, 0.0
    for bound in bounds:
        if counts[bound] >= rank:
            if bound == float("inf"):
                return low
            return low + (bound - low) * (rank - below) / (counts[bound] - below)
        low, below = bound, counts[bound]
    return low


def _traces(profiled: QueryRange) -> Iterator[dict[str, Any]]:
    """Yields all requests of the shop, the one with most thread CPU first."""
    cursor = None
    while True:
        page = profiled.json("/api/v1/traces", selector=SHOP, order="thread_cpu", limit=_TRACES_PER_PAGE, cursor=cursor)
        yield from page["traces"]
        cursor = page["next"]
        if cursor is None:
            return


def _request(profiled: QueryRange, trace: dict[str, Any]) -> ReportedRequest:
    collapsed = profiled.stacks_of_trace(trace["trace_id"])
    leaves: Counter[str] = Counter()
    paths: Counter[tuple[str, ...]] = Counter()
    for line in collapsed.splitlines():
        stack, _, value = line.rpartition(" ")
        leaves[stack.rpartition(";")[2]] += int(value)
        frames = tuple(stack.split(";"))
        for depth in range(1, len(frames) + 1):
            paths[frames[:depth]] += int(value)
    common = sorted((path for path, value in paths.items() if 2 * value >= leaves.total()), key=len)
    return ReportedRequest(
        trace_id=trace["trace_id"],
        operation=trace["operation"],
        sampled_cpu_s=trace["sampled_cpu_ns"] / 10**9,
        thread_cpu_s=trace["thread_cpu_ns"] / 10**9,
        top_functions=[name for name, _ in leaves.most_common(_TOP_FUNCTIONS)],
        hottest_path=list(common[-1]) if common else [],
    )


def as_text(report: Report) -> str:
    """Returns the report for people."""
    named = 100 * report.functions_named / report.functions if report.functions else 0
    freshness = "unknown" if report.freshness_p95_s is None else f"{report.freshness_p95_s:.2f} s"
    lines = [
        f"samples    {report.samples:,} in {report.stacks:,} different stacks",
        f"functions  {report.functions:,}, {report.functions_named:,} with a name ({named:.0f} %)",
        f"freshness  {freshness} from publishing a batch to finding it in queries (95th percentile)",
        f"requests   {report.thread_cpu_s:.2f} s of thread CPU, {report.sampled_cpu_s:.2f} s of sampled CPU",
        "",
        f"{'trace':32}  {'operation':16} {'thread CPU':>10} {'sampled CPU':>11}"
        "  hottest functions; the path with at least half of the CPU",
    ]
    for r in report.requests:
        lines += [
            f"{r.trace_id:32}  {r.operation[:16]:16} {r.thread_cpu_s * 1000:7.0f} ms {r.sampled_cpu_s * 1000:8.0f} ms"
            f"  {', '.join(r.top_functions)}",
            f"{'':34}{' > '.join(_end_of_path(r.hottest_path))}",
        ]
    return "\n".join(lines)


def _end_of_path(path: list[str]) -> list[str]:
    """Returns the last functions of a path without CPython's glue, each once."""
    return list(dict.fromkeys(name for name in path if not _GLUE.search(name)))[-_PATH_FRAMES:]
