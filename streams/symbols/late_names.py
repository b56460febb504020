"""Names locations that were announced without a name while their symbol file was coming from the symbol store.

Their names are announced as soon as the file has come, in messages without a source, as those of `resolve`. So readers
of Kafka need not wait for the next day's announcement. What is forgotten here, or gets lost, is in that.
"""

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from icestream.messages.stack_encoder import LocationColumns, LocationNames, NodeColumns, encode_stacks
from icestream.process.byte_cache import ByteCache
from icestream.symbols.symcache import Symbols, SymCaches
from icestream.v1.common_pb2 import Mapping
from streams import metrics
from streams.operators.symbolize import names_of

LATE_BYTES = 32_000_000
"""Limit of the locations that wait: about 50,000."""
PATIENCE_S = 3600.0
"""How long locations wait for a file; the symbol store may have lost it."""
LOOK_S = 1.0
PAGE = 1000
"""Locations named at a time: messages wait for that."""
_LOCATION_BYTES = 400


@dataclass(frozen=True, slots=True)
class _Location:
    """A location that waits. It has no Mapping: that would keep the memory of the whole batch."""

    id: int
    kind: Mapping.Kind
    build_id: str
    file: str
    address: int
    seen_unix_nano: int
    since_s: float = field(default_factory=time.monotonic)


class _Named(NamedTuple):
    location: _Location
    names: LocationNames


class LateNames:
    """The locations that wait. Used by one thread."""

    def __init__(self, symcaches: SymCaches) -> None:
        self._symcaches = symcaches
        self._waiting: ByteCache[int, _Location] = ByteCache(LATE_BYTES, _size)
        self._next_look_s = 0.0

    def wait(self, mapping: Mapping, location_id: int, address: int, seen_unix_nano: int) -> None:
        """Takes a location that is announced without a name."""
        if self._waiting.get(location_id) is None:
            location = _Location(location_id, mapping.kind, mapping.build_id, mapping.file, address, seen_unix_nano)
            self._waiting.put(location_id, location)

    def come(self, now_s: float) -> dict[str, list[bytes]]:
        """Returns StackBatches with names that have come, by build ID. `now_s`: of time.monotonic."""
        if now_s < self._next_look_s or not len(self._waiting):
            return {}
        self._next_look_s = now_s + LOOK_S
        of_file: dict[str, list[_Location]] = defaultdict(list)
        for _, location in self._waiting.items():
            of_file[location.build_id].append(location)
        room = PAGE
        messages = {}
        for build_id, locations in of_file.items():
            symbols = self._symcaches.get(build_id)
            if symbols is None:
                gone = not self._symcaches.version(build_id)
                self._forget([one for one in locations if gone or one.since_s < now_s - PATIENCE_S])
                continue
            page, room = locations[:room], room - len(locations)
            messages[build_id] = _messages(build_id, symbols, page)
            self._forget(page)
            if room <= 0:
                self._next_look_s = now_s
                break
        return messages

    def _forget(self, locations: list[_Location]) -> None:
        for location in locations:
            self._waiting.pop(location.id)


def _messages(build_id: str, symbols: Symbols, locations: list[_Location]) -> list[bytes]:
    found = [_Named(location, names_of(symbols, location.address, location.file)) for location in locations]
    named = [one for one in found if one.names.version]
    metrics.LOCATIONS.labels("late").inc(len(named))
    row_of: dict[tuple[Mapping.Kind, str], int] = {}
    rows = [row_of.setdefault((location.kind, location.file), len(row_of)) for location, _ in named]
    return encode_stacks(
        source=None,
        published_unix_nano=0,
        seen_unix_nano=max((location.seen_unix_nano for location, _ in named), default=0),
        nodes=NodeColumns(),
        locations=LocationColumns(
            id=np.array([location.id for location, _ in named], np.uint64),
            address=np.array([location.address for location, _ in named], np.uint64),
            mapping=np.array(rows, np.uint32),
            mappings=[Mapping(kind=kind, build_id=build_id, file=file) for kind, file in row_of],
            names=[names for _, names in named],
        ),
    )


def _size(location_id: int, location: _Location) -> int:
    return _LOCATION_BYTES + len(location.build_id) + len(location.file)
