"""Trace IDs out of files: any text that has them, such as what `icestream query traces` prints."""

import argparse
import re
import sys
from pathlib import Path

from icestream.cli import CommandError

_TRACE_ID = re.compile(r"(?<![0-9A-Za-z])[0-9a-fA-F]{32}(?![0-9A-Za-z])")


def add_trace_files(parser: argparse.ArgumentParser, *options: str) -> None:
    """Adds options for files with trace IDs."""
    for option in options:
        parser.add_argument(
            option,
            metavar="FILE",
            help="file with the trace IDs of requests (-: standard input), as `icestream query traces` prints them;"
            " then --start and --end default to all times",
        )


def trace_lists(args: argparse.Namespace) -> dict[str, list[str]] | None:
    """The body of a question about lists of requests; None if there is none. Raises CommandError."""
    files = {"trace_ids": getattr(args, "traces", None), "baseline_trace_ids": getattr(args, "baseline_traces", None)}
    body = {name: _read(path) for name, path in files.items() if path is not None}
    if args.question == "diff" and len(body) == 1:
        raise CommandError("a diff compares two lists of requests: give --traces and --baseline-traces")
    return body or None


def _read(path: str) -> list[str]:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None
    found = list(dict.fromkeys(_TRACE_ID.findall(text)))
    if not found:
        raise CommandError(f"{path} has no trace IDs, of 32 hex digits each")
    return found
