"""Ask the query API for profiles, diffs and requests, and draw them in the terminal.

icestream query merge --selector '{service="checkout"}' --start now-1h
icestream query diff --selector '{version="1.5"}' --baseline-selector '{version="1.4"}'
icestream query traces --order thread_cpu
icestream query trace 4bf92f3577b34da6a3ce929d0e0e4736
icestream query top --order cumulative
icestream query merge --format pprof --output profile.pb.gz
"""

import argparse
import json
import sys
import urllib.parse
from typing import Any

from api.terminal.client import DEFAULT_URL, URL_VARIABLE, Client
from api.terminal.draw import draw_diff, draw_top, draw_trace, draw_traces, draw_tree
from icestream.cli import CommandError

_FORMATS = ("tree", "collapsed", "pprof", "speedscope")
_DRAWN = {"top": draw_top, "traces": draw_traces, "trace": draw_trace}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    questions = parser.add_subparsers(dest="question", required=True, metavar="QUESTION")
    merge = _question(questions, "merge", "one profile over a selector and a time range")
    _add_format(merge, "tree")
    diff = _question(questions, "diff", "a profile against a baseline")
    for name in ("baseline-selector", "baseline-start", "baseline-end"):
        diff.add_argument(f"--{name}", help=f"as --{name.removeprefix('baseline-')}, of the baseline")
    diff.add_argument("--absolute", action="store_true", help="do not scale the smaller side up")
    _add_depth(diff)
    top = _question(questions, "top", "the functions that most is spent in")
    top.add_argument("--by", choices=("function", "module"), help="a row per function or module")
    top.add_argument("--order", choices=("flat", "cumulative"), help="which column is largest first")
    top.add_argument("--limit", type=int, default=30, help="rows (default: 30)")
    traces = _question(questions, "traces", "the requests that used most CPU")
    traces.add_argument("--order", choices=("sampled_cpu", "thread_cpu"), help="which CPU is largest first")
    traces.add_argument("--limit", type=int, default=20, help="rows (default: 20)")
    trace = _question(questions, "trace", "the CPU of one request", selects=False)
    trace.add_argument("trace_id", help="32 hex digits")
    _add_format(trace, None)


def run(args: argparse.Namespace) -> int:
    client = Client(args.url)
    output_format = getattr(args, "format", None)
    if output_format not in (None, "tree"):
        _write(client.read(_path(args), _parameters(args)), args.output, output_format)
        return 0
    answer = client.json(_path(args), _parameters(args))
    if args.question == "trace" and not args.json and output_format is None:
        graph = client.json(_path(args), _parameters(args) | {"format": "tree"})
        print(draw_trace(answer), "", draw_tree(graph, args.min_percent), sep="\n")
    elif args.json:
        print(json.dumps(answer, indent=2, ensure_ascii=False))
    elif args.question in ("merge", "diff") or output_format == "tree":
        draw = draw_diff if args.question == "diff" else draw_tree
        print(draw(answer, args.min_percent))
    else:
        print(_DRAWN[args.question](answer))
    return 0


def _question(
    questions: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, question: str, selects: bool = True
) -> argparse.ArgumentParser:
    parser = questions.add_parser(name, help=question, description=question)
    parser.add_argument("--url", help=f"of the API (default: {DEFAULT_URL}) [{URL_VARIABLE}]")
    parser.add_argument("--json", action="store_true", help="print the answer of the API as it is")
    parser.add_argument("--profile-type", help="default: CPU")
    if selects:
        parser.add_argument("--selector", help="""as '{service="checkout", version=~"1\\\\.4.*"}' (default: {})""")
        parser.add_argument("--start", help="RFC 3339, Unix seconds, or now-15m (the default)")
        parser.add_argument("--end", help="as --start (default: now)")
    return parser


def _add_format(parser: argparse.ArgumentParser, default: str | None) -> None:
    parser.add_argument("--format", choices=_FORMATS, default=default, help="default: drawn in the terminal")
    parser.add_argument("--output", metavar="FILE", help="where to write other formats (default: standard output)")
    _add_depth(parser)


def _add_depth(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-nodes", type=int, default=2000, help="nodes to ask for (default: 2000)")
    parser.add_argument("--min-percent", type=float, default=1.0, help="draw frames from this share on (default: 1)")


def _path(args: argparse.Namespace) -> str:
    if args.question == "trace":
        return f"/api/v1/traces/{urllib.parse.quote(args.trace_id, safe='')}/cpu"
    return f"/api/v1/{args.question}"


def _parameters(args: argparse.Namespace) -> dict[str, Any]:
    names = (
        "profile_type", "selector", "start", "end", "baseline_selector", "baseline_start", "baseline_end",
        "by", "order", "limit", "format", "max_nodes",
    )  # fmt: skip
    given = {name: getattr(args, name, None) for name in names}
    if getattr(args, "absolute", False):
        given["absolute"] = "true"
    return given


def _write(body: bytes, output: str | None, output_format: str) -> None:
    if output is None:
        if output_format == "pprof" and sys.stdout.isatty():
            raise CommandError("pprof is binary; give --output FILE")
        sys.stdout.buffer.write(body)
        sys.stdout.buffer.flush()
        return
    try:
        with open(output, "wb") as file:
            file.write(body)
    except OSError as error:
        raise CommandError(f"cannot write {output}: {error.strerror}") from None
