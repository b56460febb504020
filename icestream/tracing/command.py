"""Runs a program with tracing, without a line of code in it.

  icestream-trace python app.py
  icestream-trace --service shop gunicorn shop:app
  icestream-trace opentelemetry-instrument uvicorn shop:app

Every Python process that the program starts is traced too. It shows requests where the program uses OpenTelemetry or
`tracing.span`. Programs that ignore PYTHONPATH (python -E, -I, -S) are not traced.
"""

import argparse
import os
import sys
from collections.abc import Sequence

AUTOSTART = os.path.join(os.path.dirname(os.path.abspath(__file__)), "autostart")
_SOCKET, _SERVICE, _PATH = "ICESTREAM_ACTIVITY_SOCKET", "OTEL_SERVICE_NAME", "PYTHONPATH"


def main(arguments: Sequence[str] | None = None) -> int:
    """Becomes the program; returns an exit code only if that is impossible."""
    parser = argparse.ArgumentParser(
        prog="icestream-trace", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--service", help=f"name of the service [{_SERVICE}]")
    parser.add_argument("--socket", help=f"the collector's activity socket [{_SOCKET}]")
    parser.add_argument("command", help="the program to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    args = parser.parse_args(arguments)
    environ = dict(os.environ)
    environ[_PATH] = os.pathsep.join([AUTOSTART, *filter(None, environ.get(_PATH, "").split(os.pathsep))])
    environ["ICESTREAM_TRACE_PID"] = str(os.getpid())
    environ.pop("ICESTREAM_TRACE_PROGRAM", None)
    if args.service:
        environ[_SERVICE] = args.service
    if args.socket:
        environ[_SOCKET] = os.path.abspath(args.socket)
    try:
        os.execvpe(args.command, [args.command, *args.arguments], environ)
    except OSError as error:
        print(f"icestream-trace: {args.command}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126


def start() -> None:
    """Starts tracing in a program that `icestream-trace` runs, or in a child of it."""
    from icestream.tracing import lifecycle

    os.environ["ICESTREAM_TRACE_PROGRAM"] = lifecycle.program()  # the name of children that have none
    lifecycle.start()


if __name__ == "__main__":
    sys.exit(main())
