"""Record what the collector would publish, with symbols, into a file that the demo can replay.

  sudo icestream record machine.recording --seconds 20

Takes the settings of the collector. Nothing is sent to Kafka.
"""

import argparse
import threading
from collections.abc import Iterator
from pathlib import Path

from collector.delivery.message_log import Message
from collector.delivery.window_buffer import MemoryBuffer
from collector.processes.mapped_files import FileCache
from collector.settings import CollectorSettings, host_id
from collector.symbols.builder import SymbolBuilder
from collector.symbols.symbol_files import SymbolFiles
from icestream.cli import CommandError
from icestream.process.stop import stop_event
from icestream.topics import RAW, SYMBOLS
from icestream.v1.raw_pb2 import RawBatch
from standalone.demo.recording import write_recording


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="file to write the recording to", metavar="FILE")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds to record for (default: 20)")
    CollectorSettings.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Records for that time, or until a signal comes. Raises CommandError where this machine cannot be profiled."""
    from collector.agent import load, make_profiler
    from collector.bpf.sampler import SamplerError

    if not 0 < args.seconds <= 3600:
        raise CommandError(f"--seconds: expected more than 0 and at most 3600, got {args.seconds}")
    settings = CollectorSettings.from_args(args)
    files, buffer = FileCache(), MemoryBuffer()
    symbol_files = SymbolFiles(files.open)
    files.add_listener(symbol_files)
    stop = stop_event()
    try:
        with open(args.file, "ab"):  # fails now rather than after the recording
            pass
        profiler = make_profiler(settings, load(settings), files, buffer)
    except (SamplerError, OSError) as error:
        raise CommandError(str(error)) from error
    threading.Timer(args.seconds, stop.set).start()
    profiler.run(stop)
    messages = [*buffer.messages, *_symbols(buffer.messages, SymbolBuilder(host_id(settings), "", symbol_files))]
    size = write_recording(args.file, messages)
    print(f"{args.file}: {len(messages)} messages, {size} bytes")
    return 0


def _symbols(messages: list[Message], builder: SymbolBuilder) -> Iterator[Message]:
    """Yields the symbol files of every build ID in the raw batches that this host has symbols of."""
    mappings: dict[str, str] = {}
    for message in messages:
        if message.topic == RAW:
            mappings.update((m.build_id, m.file) for m in RawBatch.FromString(message.value).mappings if m.build_id)
    for build_id, file in mappings.items():
        for answer in builder.answer(build_id, file):
            if not answer.error:
                yield Message(SYMBOLS, build_id.encode(), answer.SerializeToString())
    builder.end_children()
