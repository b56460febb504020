"""Makes a recording small enough to ship: keeps one service, and puts names into the batches instead of symbol files.

    python -m standalone.demo.condense_recording machine.recording small.recording --service shop

The names become names that the host gives (mapping kind NAMED), one for each location: inlined functions lose their
own frame. Paths say nothing of this machine: its copy of icestream is /app, and its Python in /usr/local.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from collector.delivery.message_log import Message
from icestream.columns.packed import column, serialize
from icestream.symbols.symcache import SymCaches
from icestream.topics import RAW, SYMBOLS
from icestream.v1.common_pb2 import Mapping
from icestream.v1.raw_pb2 import RawBatch
from icestream.v1.symbols_pb2 import SymbolFile
from standalone.demo.recording import read_recording, write_recording

_ROOT = str(Path(__file__).parents[2])
_PER_SAMPLE = ("offset_us", "series", "pid", "tid", "stack", "context", "count", "value")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path, help="the recording to read")
    parser.add_argument("to", type=Path, help="the recording to write")
    parser.add_argument("--service", default="shop", help="the service to keep (default: shop)")
    args = parser.parse_args(argv)
    messages = list(read_recording(args.recording))
    size = write_recording(args.to, condense(messages, args.service))
    print(f"{args.to}: {size} bytes")
    return 0


def condense(messages: Iterable[Message], service: str) -> Iterator[Message]:
    """Yields the messages without symbol files; raw batches keep one service's samples, and get names."""
    messages = list(messages)
    with tempfile.TemporaryDirectory() as folder:
        symcaches = SymCaches(Path(folder))
        for message in messages:
            if message.topic == SYMBOLS:
                symcaches.add(SymbolFile.FromString(message.value))
        for message in messages:
            if message.topic == RAW:
                batch = _of_service(RawBatch.FromString(message.value), service)
                yield message._replace(value=_named(batch, symcaches))
            elif message.topic != SYMBOLS:
                yield message


def _of_service(batch: RawBatch, service: str) -> RawBatch:
    """Returns a batch with the samples of one service only, and the stacks and locations of these samples."""
    wanted = [any(label.name == "service" and label.value == service for label in s.labels) for s in batch.series]
    samples = {name: column(batch, f"sample_{name}") for name in _PER_SAMPLE}
    of_service = np.array(wanted, bool)[samples["series"]]
    samples = {name: values[of_service] for name, values in samples.items() if len(values)}
    series, samples["series"] = np.unique(samples["series"], return_inverse=True)
    wanted_series = [batch.series[row] for row in series]
    del batch.series[:]
    batch.series.extend(wanted_series)

    depth = column(batch, "stack_depth")
    stacks, samples["stack"] = np.unique(samples["stack"], return_inverse=True)
    of_stacks = np.repeat(np.isin(np.arange(len(depth)), stacks), depth)
    locations, frames = np.unique(column(batch, "stack_frames")[of_stacks], return_inverse=True)

    names = ("mapping", "address", "function", "file", "line")
    location_columns = {f"location_{name}": column(batch, f"location_{name}") for name in names}
    columns = {name: values[locations] for name, values in location_columns.items() if len(values)}
    columns |= {f"sample_{name}": values for name, values in samples.items()}
    columns |= {"stack_depth": depth[stacks], "stack_frames": frames}
    for name in (*columns, "stack_id"):  # locations get other names
        batch.ClearField(name)
    return RawBatch.FromString(serialize(batch, columns))


def _named(batch: RawBatch, symcaches: SymCaches) -> bytes:
    """Returns the encoded batch: locations that symbols name have names; strings and mappings without use are gone."""
    rows = len(batch.location_mapping)
    given = len(batch.location_function) > 0
    strings = {"": 0}
    mappings = {Mapping().SerializeToString(): 0}
    columns = {f"location_{name}": np.zeros(rows, int) for name in ("mapping", "function", "file", "line")}
    columns["location_address"] = column(batch, "location_address")
    for row in range(rows):
        mapping = batch.mappings[batch.location_mapping[row]]
        symbols = symcaches.get(mapping.build_id) if mapping.kind != Mapping.NAMED else None
        lines = symbols.lookup(batch.location_address[row], mapping.file) if symbols else []
        function, file, number = "", "", 0
        moved = Mapping.FromString(mapping.SerializeToString())
        moved.file = _elsewhere(mapping.file)
        if lines:
            function, file, number = lines[-1].function, PurePosixPath(lines[-1].file).name, lines[-1].line
            moved = Mapping(kind=Mapping.NAMED, file=moved.file)
            columns["location_address"][row] = 0
        elif given:
            function = batch.strings[batch.location_function[row]]
            file, number = _elsewhere(batch.strings[batch.location_file[row]]), batch.location_line[row]
        columns["location_mapping"][row] = mappings.setdefault(moved.SerializeToString(), len(mappings))
        columns["location_function"][row] = strings.setdefault(function, len(strings))
        columns["location_file"][row] = strings.setdefault(file, len(strings))
        columns["location_line"][row] = number
    for name in (*columns, "strings", "mappings"):
        batch.ClearField(name)
    batch.strings.extend(strings)
    batch.mappings.extend(Mapping.FromString(mapping) for mapping in mappings)
    return serialize(batch, columns)


def _elsewhere(path: str) -> str:
    return path.replace(_ROOT, "/app").replace(sys.base_prefix, "/usr/local")


if __name__ == "__main__":
    sys.exit(main())
