"""Profile this machine while a small traced web service answers requests, and show the CPU of these requests.

  sudo icestream demo
  sudo icestream demo --once --json

Everything runs embedded, in a temporary folder. The demo prints the requests that used most CPU, with their thread CPU
(by the CPU clocks of their threads) beside their sampled CPU, and keeps the web page up until Ctrl-C. Where this
machine cannot be profiled (no root, no BPF) it says so and plays a recording.
"""

import argparse
import json
import tempfile
from pathlib import Path

from icestream.cli import CommandError
from icestream.process.stop import stop_event
from standalone.demo.play import RECORDING, load_recording, play_recording
from standalone.demo.report import as_text
from standalone.demo.run import (
    DemoError,
    is_profiling,
    profile_web_service,
    report_when_settled,
    say,
    start_icestream,
    why_not_profiling,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="end after printing")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds to send requests for (default: 20)")
    parser.add_argument("--frequency", type=int, default=199, help="samples per second and CPU (default: 199)")
    parser.add_argument("--recording", type=Path, help="play this recording instead of profiling", metavar="FILE")


def run(args: argparse.Namespace) -> int:
    if not 1 <= args.seconds <= 3600 or not 1 <= args.frequency <= 1000:
        raise CommandError(
            f"expected --seconds 1 to 3600 and --frequency 1 to 1000, got {args.seconds:g} and {args.frequency}"
        )
    stop = stop_event()
    try:
        given = None if args.recording is None else load_recording(args.recording)
        say("starting the broker, the store, the stream processors and the collector")
        with (
            tempfile.TemporaryDirectory(prefix="icestream-demo-") as folder,
            start_icestream(Path(folder), args.frequency, stop) as info,
        ):
            if given is None and is_profiling(info):
                say(f"profiling this machine at {args.frequency} Hz while a web service works for {args.seconds:g} s")
                profiler, profiled = "ebpf", profile_web_service(info, args.seconds, stop)
            else:
                if given is None:
                    say(f"this machine cannot be profiled: {why_not_profiling(Path(folder))}")
                    say("playing a recording instead")
                recorded = given or load_recording(RECORDING)
                profiler, profiled = "recording", play_recording(info, recorded, stop)
            if stop.is_set():
                return 130
            report = report_when_settled(profiled, profiler, stop)
            print(json.dumps(report.as_dict()) if args.json else as_text(report), flush=True)
            if not args.once:
                say(f"\nthe page is at {profiled.page} until Ctrl-C; profiling goes on")
                stop.wait()
    except DemoError as error:
        raise CommandError(str(error)) from error
    return 0
