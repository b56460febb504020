"""Profile this machine while a small traced web service answers requests, and show what was seen.

  sudo icestream demo
  sudo icestream demo --once --json

Everything runs embedded, in a temporary folder. The demo prints the requests that used most CPU, each with its threads'
CPU clocks beside the CPU from samples, and keeps the web page up until Ctrl-C. Where this machine cannot be profiled
(no root, no BPF) it says so and replays a recording.
"""

import argparse
import json
import tempfile
from pathlib import Path

from icestream.cli import CommandError
from icestream.stop import stop_event
from standalone.demo.asking import AskError
from standalone.demo.replay import RECORDING, replay
from standalone.demo.result import as_text
from standalone.demo.run import DemoError, profiled, running, say, settle, why_not_profiled, work


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="end after printing")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds to send requests for (default: 20)")
    parser.add_argument("--frequency", type=int, default=199, help="samples per second and CPU (default: 199)")
    parser.add_argument("--recording", type=Path, help="replay this recording instead of profiling", metavar="FILE")


def run(args: argparse.Namespace) -> int:
    if not 1 <= args.seconds <= 3600 or not 1 <= args.frequency <= 1000:
        raise CommandError(
            f"expected --seconds 1 to 3600 and --frequency 1 to 1000, got {args.seconds:g} and {args.frequency}"
        )
    stop = stop_event()
    say("starting broker, store, stream processors and collector")
    try:
        with (
            tempfile.TemporaryDirectory(prefix="icestream-demo-") as data,
            running(Path(data), args.frequency, stop) as found,
        ):
            if args.recording is None and profiled(found):
                say(f"profiling this machine at {args.frequency} Hz; a web service works for {args.seconds:g} s")
                demo = work(found, args.seconds, stop)
            else:
                if args.recording is None:
                    say(f"this machine cannot be profiled: {why_not_profiled(Path(data))}")
                    say("replaying a recording instead")
                demo = replay(found, args.recording or RECORDING, stop)
            if stop.is_set():
                return 130
            result = settle(demo, stop)
            print(json.dumps(result.as_dict()) if args.json else as_text(result), flush=True)
            if not args.once:
                say(f"\nthe page is at {demo.page} until Ctrl-C; profiling goes on")
                stop.wait()
    except (DemoError, AskError) as error:
        raise CommandError(str(error)) from error
    return 0
