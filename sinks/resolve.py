"""Names locations that were stored before their symbols came.

When a SymCache comes, this reads from the table the locations of its build ID that have no name, or an older one. It
looks them up and publishes them on icestream.stacks; the sinks store them. A stream processor that has not read the
SymCache yet may announce a location without a name just after that. So unnamed locations of known build IDs are looked
up again from time to time.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from icestream.clickhouse.client import Clients
from icestream.messages.checks import MAX_LINES
from icestream.messages.stack_encoder import LocationColumns, LocationNames, NodeColumns, encode_stacks
from icestream.messages.symbols import decode_symbol_file
from icestream.symbols.symcache import Symbols, SymCacheError, SymCaches
from icestream.topics import RESOLVE_GROUP, STACKS, SYMBOLS
from icestream.v1.common_pb2 import Mapping
from icestream.v1.symbols_pb2 import SymbolFile
from sinks import metrics
from sinks.clickhouse.migrate import check
from sinks.runner.ranges import MessageRange
from sinks.runner.seen import TriedLocations

log = logging.getLogger(__name__)

_RECHECK_S = 10.0
_FLUSH_S = 30.0
_PAGE = 10_000
_KINDS_WITH_SYMBOLS = (Mapping.FILE, Mapping.KERNEL, Mapping.MODULE)


@dataclass(frozen=True)
class Location:
    """A row of the table `locations`, without its lines."""

    id: int
    kind: int
    file: str
    address: int
    last_seen_unix_s: int


class ResolveSink:
    """Reads icestream.symbols, writes icestream.stacks. Used by one thread."""

    name = "resolve"
    group = RESOLVE_GROUP
    topics: tuple[str, ...] = (SYMBOLS,)
    keeps_ranges = False
    writes_together = False

    def __init__(self, clients: Clients, symcaches: SymCaches, producer: Producer) -> None:
        self._clients = clients
        self._symcaches = symcaches
        self._producer = producer
        self._tried = TriedLocations()
        self._next = 0.0

    def check(self) -> None:
        """Raises MigrationError where tables are missing."""
        check(self._clients.get(), self._clients.dsn)

    def decode(self, message: Message, cluster: str) -> SymbolFile:
        """Raises BadMessage."""
        return decode_symbol_file(message.value())

    def write(self, *ranges: MessageRange[SymbolFile]) -> None:
        """Raises the client's errors, KafkaException and OSError."""
        files = [file for message_range in ranges for file in message_range.messages]
        for file in files:
            try:
                self._symcaches.add(file)
            except SymCacheError as error:
                log.warning("symbols of %s cannot be used: %s", file.build_id[:100], error)
        self._resolve(list({file.build_id for file in files if file.version}))

    def try_out(self, messages: Sequence[SymbolFile], empty: bool) -> None:
        """Does nothing: nothing of a message is stored, but names of locations."""

    def failed(self) -> None:
        """See Clients.discard."""
        self._clients.discard()

    def idle(self) -> None:
        """Names, from time to time, unnamed locations whose symbols are known."""
        if time.monotonic() < self._next:
            return
        started = time.monotonic()
        rows = self._clients.get().query(
            "SELECT build FROM (SELECT any(build_id) AS build, max(version) AS named FROM locations"
            " WHERE kind IN {kinds:Array(UInt8)} AND build_id != '' GROUP BY location_id HAVING named = 0)"
            " GROUP BY build",
            parameters={"kinds": list(_KINDS_WITH_SYMBOLS)},
        )
        self._resolve([build_id for (build_id,) in rows.result_rows])
        took = time.monotonic() - started
        self._next = time.monotonic() + max(_RECHECK_S, 20 * took)

    def close(self) -> None:
        self._producer.flush(_FLUSH_S)
        self._producer.purge()
        self._producer.close()

    def _resolve(self, build_ids: list[str]) -> None:
        """Publishes names for the stored locations of these files that have no name, or an older one."""
        for build_id in build_ids:
            version = self._symcaches.version(build_id)
            symbols = self._symcaches.get(build_id) if version else None
            if symbols is not None:
                for page in self._unnamed(build_id, version):
                    self._name(build_id, symbols, page)

    def _name(self, build_id: str, symbols: Symbols, locations: list[Location]) -> None:
        """Publishes the names of those of the locations that were not looked up before."""
        ids = np.array([location.id for location in locations], np.uint64)
        untried = self._tried.untried(build_id, symbols.version, ids)
        named = []
        for row in np.flatnonzero(untried).tolist():
            location = locations[row]
            if lines := tuple(symbols.lookup(location.address, location.file)[:MAX_LINES]):
                named.append((location, LocationNames(symbols.version, lines)))
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        for message in stack_batches(build_id, named):
            self._producer.produce(STACKS, message, key=build_id.encode(), on_delivery=delivered)
        if named and self._producer.flush(_FLUSH_S):
            raise KafkaException(f"names of {build_id} were not acknowledged within {_FLUSH_S:.0f} s")
        if failed:
            raise KafkaException(failed[0])
        self._tried.add(build_id, symbols.version, ids[untried])
        metrics.RESOLVED.inc(len(named))

    def _unnamed(self, build_id: str, version: int) -> Iterator[list[Location]]:
        """Yields pages, so that a file with a million locations takes no more memory than others."""
        page: list[Location] = []
        while not page or len(page) == _PAGE:
            rows = self._clients.get().query(
                "SELECT location_id, any(kind), any(file), any(address), toUnixTimestamp(max(last_seen)) FROM locations"
                " WHERE build_id = {build_id:String} AND kind IN {kinds:Array(UInt8)} AND location_id > {after:UInt64}"
                " GROUP BY location_id HAVING max(version) < {version:UInt64} ORDER BY location_id LIMIT {page:UInt32}",
                parameters={
                    "build_id": build_id, "kinds": list(_KINDS_WITH_SYMBOLS), "version": version, "page": _PAGE,
                    "after": page[-1].id if page else 0,
                },
            )  # fmt: skip
            page = [Location(*row) for row in rows.result_rows]
            if not page:
                return
            yield page


def stack_batches(build_id: str, named: Sequence[tuple[Location, LocationNames]]) -> list[bytes]:
    """Returns StackBatches with the names of locations of one build ID."""
    row_of: dict[tuple[int, str], int] = {}
    locations = [location for location, _ in named]
    rows = [row_of.setdefault((location.kind, location.file), len(row_of)) for location in locations]
    return encode_stacks(
        source=None,
        published_unix_nano=0,
        seen_unix_nano=max((location.last_seen_unix_s for location in locations), default=0) * 10**9,
        nodes=NodeColumns(),
        locations=LocationColumns(
            id=np.array([location.id for location in locations], np.uint64),
            address=np.array([location.address for location in locations], np.uint64),
            mapping=np.array(rows, np.uint32),
            mappings=[Mapping(kind=kind, build_id=build_id, file=file) for kind, file in row_of],  # type: ignore[arg-type]
            names=[names for _, names in named],
        ),
    )
