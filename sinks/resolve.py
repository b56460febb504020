"""Names for locations that were stored before their symbols came.

When a SymCache comes, the locations of its build ID that have no name yet, or an older one, are read from the table,
looked up, and published on icestream.stacks like any other; the sinks store them. A location may be announced unnamed
just after that (the stream processors had not read the SymCache yet), so unnamed locations of known build IDs are
looked for again, now and then.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from confluent_kafka import KafkaException, Message, Producer

from icestream import packed
from icestream.clickhouse import Clients
from icestream.symcache import Line, SymCacheError, SymCaches
from icestream.topics import MAX_MESSAGE_BYTES, RESOLVE_GROUP, STACKS, SYMBOLS
from icestream.v1.common_pb2 import Mapping
from icestream.v1.stacks_pb2 import StackBatch
from icestream.v1.symbols_pb2 import SymbolFile
from sinks import metrics
from sinks.migrate import check
from sinks.ranges import Range
from sinks.tables.arrow import parse

log = logging.getLogger(__name__)

_RECHECK_S = 10.0
_FLUSH_S = 30.0
_MAX_NAME = 1024
_MAX_LINES = 32
_TRIED_KEPT = 2_000_000
_NAMELESS = (Mapping.FILE, Mapping.KERNEL, Mapping.MODULE)


@dataclass(frozen=True)
class Location:
    """A row of `locations`, without its lines."""

    id: int
    kind: int
    file: str
    address: int
    last_seen: int  # seconds since 1970


class ResolveSink:
    """Reads icestream.symbols, writes icestream.stacks. Used by one thread."""

    name = "resolve"
    group = RESOLVE_GROUP
    topics: tuple[str, ...] = (SYMBOLS,)
    keeps_ranges = False

    def __init__(self, clients: Clients, symcaches: SymCaches, producer: Producer) -> None:
        self._clients = clients
        self._symcaches = symcaches
        self._producer = producer
        self._tried: set[tuple[int, int]] = set()  # (location, version) for which the SymCache has no name
        self._next = 0.0

    def check(self) -> None:
        """Raises MigrationError where tables are missing."""
        check(self._clients.get(), self._clients.dsn)

    def decode(self, message: Message, cluster: str) -> SymbolFile:
        """Raises BadMessage."""
        return parse(SymbolFile, message.value())

    def write(self, message_range: Range[SymbolFile]) -> None:
        """Raises the client's errors, KafkaException and OSError."""
        for file in message_range.messages:
            try:
                self._symcaches.add(file)
            except SymCacheError as error:
                log.warning("symbols of %s cannot be used: %s", file.build_id[:100], error)
        self._resolve(list({file.build_id for file in message_range.messages if file.version}))

    def failed(self) -> None:
        """See Clients.discard."""
        self._clients.discard()

    def idle(self) -> None:
        """Looks now and then for unnamed locations whose symbols are known."""
        if time.monotonic() < self._next:
            return
        started = time.monotonic()
        rows = self._clients.get().query(
            "SELECT build FROM (SELECT any(build_id) AS build, max(version) AS named FROM locations"
            " WHERE kind IN {kinds:Array(UInt8)} AND build_id != '' GROUP BY location_id HAVING named = 0)"
            " GROUP BY build",
            parameters={"kinds": list(_NAMELESS)},
        )
        self._resolve([build_id for (build_id,) in rows.result_rows])
        took = time.monotonic() - started
        self._next = time.monotonic() + max(_RECHECK_S, 20 * took)

    def close(self) -> None:
        self._producer.flush(_FLUSH_S)
        self._producer.purge()
        self._producer.close()

    def _resolve(self, build_ids: list[str]) -> None:
        """Publishes names of what is stored of these files with no name, or an older one."""
        for build_id in build_ids:
            version = self._symcaches.version(build_id)
            symbols = self._symcaches.get(build_id) if version else None
            if symbols is None:
                continue
            named = []
            for location in self._unnamed(build_id, version):
                if (location.id, version) in self._tried:
                    continue
                lines = [_cut(line) for line in symbols.lookup(location.address)[:_MAX_LINES]]
                if lines:
                    named.append((location, lines))
                self._tried.add((location.id, version))  # published, or without a name: not again
            for message in stack_batches(build_id, version, named):
                self._producer.produce(STACKS, message, key=build_id.encode())
            if named and self._producer.flush(_FLUSH_S):
                self._tried.clear()
                raise KafkaException(f"names of {build_id} were not acknowledged within {_FLUSH_S:.0f} s")
            metrics.RESOLVED.inc(len(named))
        if len(self._tried) > _TRIED_KEPT:
            self._tried.clear()

    def _unnamed(self, build_id: str, version: int) -> Iterator[Location]:
        rows = self._clients.get().query(
            "SELECT location_id, any(kind), any(file), any(address), toUnixTimestamp(max(last_seen)) FROM locations"
            " WHERE build_id = {build_id:String} AND kind IN {kinds:Array(UInt8)}"
            " GROUP BY location_id HAVING max(version) < {version:UInt64}",
            parameters={"build_id": build_id, "kinds": list(_NAMELESS), "version": version},
        )
        return (Location(*row) for row in rows.result_rows)


def stack_batches(
    build_id: str, version: int, named: Sequence[tuple[Location, Sequence[Line]]], limit: int = MAX_MESSAGE_BYTES
) -> Iterator[bytes]:
    """StackBatches with the lines of locations of one build ID, each under `limit` bytes."""
    piece: list[tuple[Location, Sequence[Line]]] = []
    size = fixed = 2_000 + len(build_id)
    for location, lines in named:
        more = 40 + len(location.file) * 4 + sum(28 + 4 * (len(line.function) + len(line.file)) for line in lines)
        if piece and size + more > limit:
            yield _stack_batch(build_id, version, piece)
            piece, size = [], fixed
        piece.append((location, lines))
        size += more
    if piece:
        yield _stack_batch(build_id, version, piece)


def _stack_batch(build_id: str, version: int, named: Sequence[tuple[Location, Sequence[Line]]]) -> bytes:
    strings: defaultdict[str, int] = defaultdict(lambda: len(strings), {"": 0})
    mappings: defaultdict[tuple[int, str], int] = defaultdict(lambda: len(mappings))
    locations = [location for location, _ in named]
    lines = [line for _, lines in named for line in lines]
    columns: dict[str, np.ndarray] = {
        "location_id": np.array([location.id for location in locations], np.uint64),
        "location_mapping": np.array([mappings[location.kind, location.file] for location in locations], np.uint32),
        "location_address": np.array([location.address for location in locations], np.uint64),
        "location_version": np.full(len(named), version, np.uint64),
        "location_line_count": np.array([len(lines) for _, lines in named], np.uint32),
        "line_function": np.array([strings[line.function] for line in lines], np.uint32),
        "line_file": np.array([strings[line.file] for line in lines], np.uint32),
        "line_number": np.array([line.line for line in lines], np.uint32),
        "line_start_line": np.array([line.start_line for line in lines], np.uint32),
    }
    message = StackBatch(
        seen_unix_nano=max(location.last_seen for location in locations) * 10**9,
        strings=list(strings),
        mappings=[Mapping(kind=kind, build_id=build_id, file=file) for kind, file in mappings],  # type: ignore[arg-type]
    )
    return packed.serialize(message, columns)


def _cut(line: Line) -> Line:
    return Line(line.function[:_MAX_NAME], line.file[:_MAX_NAME], min(line.line, 2**32 - 1), line.start_line)
