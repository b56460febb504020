"""Ask the query API for profiles, diffs and requests, and draw them in the terminal.

  icestream query merge --selector '{service="checkout"}' --start now-1h
  icestream query diff --selector '{version="1.5"}' --baseline-selector '{version="1.4"}'
  icestream query diff --selector '{version="1.5"}' --baseline-selector '{version="1.4"}' --fail-over 5%
  icestream query diff --baseline-start now-2h --baseline-end now-1h --start now-1h --compare request --fail-over 5%
  icestream query operations --selector '{service="checkout"}' --order p95_duration
  icestream query operations --start now-1h --baseline-start now-25h --baseline-end now-24h
  icestream query top --selector '{service="checkout", span_name="render"}'
  icestream query merge --traces slow.txt
  icestream query diff --traces slow.txt --baseline-traces fast.txt
  icestream query slow --selector '{service="checkout", operation="GET /pay"}' --slow 99
  icestream query traces --order thread_cpu
  icestream query trace 4bf92f3577b34da6a3ce929d0e0e4736
  icestream query top --order cumulative --frames all
  icestream query sandwich malloc --selector '{service="checkout"}'
  icestream query timeline --sum-by service
  icestream query completeness --start now-1d
  icestream query merge --format pprof --output profile.pb.gz

`icestream query QUESTION --help` lists the options of each question, with an example.
"""

import argparse
import json
import re
import sys
import urllib.parse
from collections.abc import Callable
from typing import Any

from api.terminal.client import DEFAULT_URL, URL_VARIABLE, Client
from api.terminal.draw import (
    draw_completeness,
    draw_diff,
    draw_sandwich,
    draw_timeline,
    draw_top,
    draw_tree,
)
from api.terminal.draw_comparison import draw_comparison
from api.terminal.draw_gate import draw_gate
from api.terminal.draw_operations import draw_operations, draw_slow
from api.terminal.draw_requests import draw_trace, draw_traces
from api.terminal.gate import EXIT_CODE, check_diff
from api.terminal.request_gate import check_operations, draw_request_gate
from api.terminal.trace_files import add_trace_files, trace_lists
from icestream.cli import CommandError
from icestream.process.printable import printable

ORDERS = (
    "thread_cpu", "sampled_cpu", "requests", "mean_cpu", "p50_cpu", "p95_cpu", "p99_cpu", "mean_duration",
    "p50_duration", "p95_duration", "p99_duration", "growth", "name",
)  # fmt: skip
"""What operations can be sorted by."""
_FORMATS = ("tree", "collapsed", "pprof", "speedscope", "firefox", "pgo", "arrow", "jsonl")
_BINARY = ("pprof", "pgo", "arrow")
_BASELINE = ("selector", "start", "end")
_NOT_OF_REQUESTS = ("focus", "ignore", "hide", "frames", "by", "absolute", "invert", "traces", "baseline_traces")
"""Options of a diff that a comparison of requests does not have."""
_ALL_OPERATIONS = 10_000
_DRAW_TREES = {"merge": draw_tree, "diff": draw_diff, "sandwich": draw_sandwich}
_DRAW = {
    "top": draw_top,
    "timeline": draw_timeline,
    "operations": draw_operations,
    "slow": draw_slow,
    "traces": draw_traces,
    "trace": draw_trace,
    "completeness": draw_completeness,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_parser = parser.add_subparsers(dest="question", required=True, metavar="QUESTION").add_parser
    merge = _question(add_parser, "merge", "draw one profile of a selector and a time range")
    _add_view(merge)
    _add_invert(merge)
    add_trace_files(merge, "--traces")
    merge.add_argument("--group-by", metavar="LABEL", help="label whose values become the first frames")
    _add_format(merge, "tree")
    diff = _question(add_parser, "diff", "compare a profile with a baseline")
    _add_baseline(diff, "for the baseline")
    diff.add_argument(
        "--absolute", action="store_true", help="compare values as they are, without scaling the smaller side up"
    )
    add_trace_files(diff, "--traces", "--baseline-traces")
    _add_depth(diff)
    _add_view(diff)
    _add_invert(diff)
    _add_gate(diff)
    sandwich = _question(add_parser, "sandwich", "show what calls a function, and what it calls")
    sandwich.add_argument("function", help="name of the function, as top lists it")
    sandwich.add_argument("--module", help="its module, as top lists it (default: any)")
    sandwich.add_argument("--file", help="its source file, as top lists it (default: any)")
    _add_depth(sandwich)
    _add_view(sandwich)
    top = _question(add_parser, "top", "list the functions with the largest values")
    top.add_argument("--order", choices=("flat", "cumulative"), help="column to sort by, largest first")
    _add_view(top)
    top.add_argument("--limit", type=int, default=30, help="rows to list (default: 30)")
    timeline = _question(add_parser, "timeline", "sum up values over time")
    timeline.add_argument("--step", help="length of a step, such as 15s or 1h (default: about 120 steps)")
    timeline.add_argument("--sum-by", metavar="LABELS", help="labels to list separately, separated by commas")
    timeline.add_argument("--limit", type=int, default=5, help="columns to list (default: 5)")
    completeness = _question(add_parser, "completeness", "say what is missing in a time range, by host and kind")
    completeness.add_argument("--limit", type=int, default=50, help="rows to list (default: 50)")
    operations = _question(add_parser, "operations", "list what services do: requests, CPU and durations")
    operations.add_argument("--order", choices=ORDERS, help="column to sort by, largest first (default: thread_cpu)")
    operations.add_argument("--by", metavar="LABELS", help="labels of requests to split by, separated by commas")
    operations.add_argument("--limit", type=int, default=30, help="rows to list (default: 30)")
    _add_baseline(operations, "for a baseline, with which the cost of a request is compared")
    slow = _question(add_parser, "slow", "say what the slow requests of an operation do that the fast ones do not")
    slow.add_argument("--measure", choices=("duration", "cpu"), help="what makes a request slow (default: duration)")
    slow.add_argument("--slow", type=float, help="percentile that slow requests reach (default: 95)")
    slow.add_argument("--fast", type=float, help="percentile that fast requests do not exceed (default: 50)")
    _add_view(slow)
    traces = _question(add_parser, "traces", "list the requests that used the most CPU")
    traces.add_argument("--order", choices=("cpu", "thread_cpu", "sampled_cpu"), help="CPU to sort by, largest first")
    traces.add_argument("--limit", type=int, default=20, help="rows to list (default: 20)")
    trace = _question(add_parser, "trace", "show the CPU of one request", selects=False)
    trace.add_argument("trace_id", help="trace ID, 32 hex digits")
    trace.add_argument(
        "--scale", choices=("cpu", "sampled_cpu"), help="what values of the graph add up to (default: cpu)"
    )
    _add_view(trace)
    _add_invert(trace)
    _add_format(trace, None)


def run(args: argparse.Namespace) -> int:
    client = Client(args.url)
    if _compares_requests(args):
        return _compare_requests(client, args)
    output_format = getattr(args, "format", None)
    if getattr(args, "output", None) and output_format in (None, "tree"):
        raise CommandError("--output: give --format as well, or redirect standard output")
    body = trace_lists(args)
    if output_format not in (None, "tree"):
        _write(client.read(_path(args), _parameters(args), body), args.output, output_format)
        return 0
    answer = client.json(_path(args), _parameters(args), body)
    if args.question == "trace" and not args.json and output_format is None:
        graph = client.json(_path(args), _parameters(args) | {"format": "tree"})
        drawn = [draw_tree(graph, args.min_percent)] if graph["stacks"] else []
        print(draw_trace(answer), *drawn, sep="\n\n")
    elif getattr(args, "fail_over", None) is not None:
        return _check(answer, args)
    elif args.json:
        print(json.dumps(answer, indent=2, ensure_ascii=False))
    elif args.question in _DRAW_TREES or output_format == "tree":
        print(_DRAW_TREES.get(args.question, draw_tree)(answer, args.min_percent))
    else:
        print(_DRAW[args.question](answer))
    return 0


def _question(
    add_parser: Callable[..., argparse.ArgumentParser], name: str, help_text: str, selects: bool = True
) -> argparse.ArgumentParser:
    example = next((line for line in (__doc__ or "").splitlines() if f"icestream query {name} " in line), "")
    parser = add_parser(
        name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}.\n\n{example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--url", help=f"URL of the API (default: {DEFAULT_URL}) [{URL_VARIABLE}]")
    parser.add_argument("--json", action="store_true", help="print the API's answer as it is")
    if name != "completeness":  # what is missing is missing of all profile types
        parser.add_argument("--profile-type", help="profile type (default: CPU)")
    if selects:
        parser.add_argument("--selector", help="""such as '{service="checkout", version=~"1\\\\.4.*"}' (default: {})""")
        parser.add_argument("--start", help="start of the time range: RFC 3339, Unix seconds, or now-15m (the default)")
        parser.add_argument("--end", help="end of the time range, as --start (default: now)")
    return parser


def _add_format(parser: argparse.ArgumentParser, default: str | None) -> None:
    parser.add_argument(
        "--format", choices=_FORMATS, default=default, help="format of the answer (default: drawn in the terminal)"
    )
    parser.add_argument("--output", metavar="FILE", help="file to write other formats to (default: standard output)")
    _add_depth(parser)


def _add_baseline(parser: argparse.ArgumentParser, what_for: str) -> None:
    for name in _BASELINE:
        parser.add_argument(f"--baseline-{name}", help=f"as --{name}, {what_for}")


def _add_depth(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-nodes", type=int, default=2000, help="largest number of nodes to ask for (default: 2000)"
    )
    parser.add_argument("--min-percent", type=float, default=1.0, help="smallest share of a frame to draw (default: 1)")


def _add_view(parser: argparse.ArgumentParser) -> None:
    pattern = "this regular expression matches a frame's function, module or source file"
    parser.add_argument("--focus", metavar="REGEX", help=f"keep only stacks where {pattern}")
    parser.add_argument("--ignore", metavar="REGEX", help=f"leave out stacks where {pattern}")
    parser.add_argument("--hide", metavar="REGEX", help=f"take frames out where {pattern}")
    parser.add_argument(
        "--frames",
        choices=("auto", "own", "all"),
        help="own: time of libraries, interpreters and the kernel goes to the own code that called them; auto: own if"
        " interpreters run most of it, else all (default: auto, but all in files of --format)",
    )
    parser.add_argument(
        "--by", choices=("function", "line", "file", "module", "address"), help="what a frame is (default: a function)"
    )


def _add_invert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--invert", action="store_true", help="start stacks at their innermost frames")


def _add_gate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fail-over",
        metavar="PERCENT",
        type=_percent,
        help=f"end with exit code {EXIT_CODE} if a function (or a request) grew by more than that for certain (5%%)",
    )
    parser.add_argument(
        "--compare",
        choices=("share", "time", "request"),
        default="share",
        help="with --fail-over: by the share of each side's total (the default), by CPU per time, as for one benchmark"
        " run of each version (then the whole is checked, too), or by the CPU of one request of each operation",
    )


def _percent(text: str) -> float:
    match = re.fullmatch(r"(\d{1,4}(?:\.\d+)?)\s*%?", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"expected a percentage such as 5%, got {text!r}")
    return float(match[1])


def _check(diff: dict[str, Any], args: argparse.Namespace) -> int:
    gate = check_diff(diff, args.fail_over, args.compare)
    print(json.dumps(gate.as_json(), indent=2, ensure_ascii=False) if args.json else draw_gate(gate, diff))
    return EXIT_CODE if gate.failed else 0


def _compares_requests(args: argparse.Namespace) -> bool:
    has_baseline = any(getattr(args, f"baseline_{name}", None) for name in _BASELINE)
    return (args.question == "operations" and has_baseline) or getattr(args, "compare", "") == "request"


def _compare_requests(client: Client, args: argparse.Namespace) -> int:
    """Raises CommandError."""
    for name in _NOT_OF_REQUESTS if args.question == "diff" else ("order",):
        if getattr(args, name):
            raise CommandError(f"--{name.replace('_', '-')} is not for comparing what a request costs: leave it out")
    limit = args.limit if args.question == "operations" else _ALL_OPERATIONS
    parameters = {name: getattr(args, name) for name in ("profile_type", *_BASELINE)}
    parameters |= {f"baseline_{name}": getattr(args, f"baseline_{name}") for name in _BASELINE} | {"limit": limit}
    answer = client.json("/api/v1/operations/compare", parameters)
    if args.question == "operations" or args.fail_over is None:
        print(json.dumps(answer, indent=2, ensure_ascii=False) if args.json else draw_comparison(answer))
        return 0
    gate = check_operations(answer, args.fail_over)
    print(json.dumps(gate.as_json(), indent=2, ensure_ascii=False) if args.json else draw_request_gate(gate))
    return EXIT_CODE if gate.failed else 0


def _path(args: argparse.Namespace) -> str:
    if args.question == "trace":
        return f"/api/v1/traces/{urllib.parse.quote(args.trace_id, safe='')}/cpu"
    if args.question == "slow":
        return "/api/v1/operations/slow"
    return f"/api/v1/{args.question}"


def _parameters(args: argparse.Namespace) -> dict[str, Any]:
    names = (
        "profile_type", "selector", "start", "end", "baseline_selector", "baseline_start", "baseline_end",
        "by", "scale", "order", "limit", "step", "sum_by", "format", "max_nodes",
        "focus", "ignore", "hide", "frames", "function", "module", "file", "group_by",
        "measure", "slow", "fast",
    )  # fmt: skip
    parameters = {name: getattr(args, name, None) for name in names}
    if hasattr(args, "frames") and getattr(args, "format", None) in (None, "tree"):
        parameters["frames"] = args.frames or "auto"
    parameters |= {name: "true" for name in ("absolute", "invert") if getattr(args, name, False)}
    return parameters


def _write(body: bytes, output: str | None, output_format: str) -> None:
    if output is None:
        if output_format in _BINARY and sys.stdout.isatty():
            raise CommandError(f"{output_format} is binary, and standard output is a terminal: give --output FILE")
        if sys.stdout.isatty():
            body = b"\n".join(printable(line.decode(errors="replace")).encode() for line in body.split(b"\n"))
        sys.stdout.buffer.write(body)
        sys.stdout.buffer.flush()
        return
    try:
        with open(output, "wb") as file:
            file.write(body)
    except OSError as error:
        raise CommandError(f"cannot write {output}: {error.strerror}") from None
