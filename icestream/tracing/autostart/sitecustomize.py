"""Python runs this at its start where `icestream-trace` put its folder on PYTHONPATH: it starts tracing.

After that it runs the `sitecustomize` that this one hides, if there is one.
"""

import importlib
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _start() -> None:
    try:
        try:
            from icestream.tracing.command import start
        except ImportError:  # this Python has no icestream-tracing: take the one that `icestream-trace` came with
            sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(_HERE))))
            try:
                from icestream.tracing.command import start
            finally:
                sys.path.pop()
        start()
    except Exception as error:  # the application must start all the same
        if os.environ.get("ICESTREAM_TRACE_PID") == str(os.getpid()):  # not in each of its children again
            print(f"icestream-trace: this program is not traced: {error!r}", file=sys.stderr)


def _run_hidden() -> None:
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours


_start()
_run_hidden()
