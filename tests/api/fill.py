"""Fills the tables with a generated call tree and samples, and keeps what was generated to compare answers with."""

import random
from dataclasses import dataclass, field

from clickhouse_connect.driver.client import Client

from icestream.ids import series_id
from icestream.labels.request_labels import RequestLabels
from icestream.topics import DEFAULT_PROFILE_TYPE
from tests.data import tables
from tests.data.tables import NO_SPAN, NO_TRACE, insert_rows, insert_series, node_id, to_datetime

START_S = 1_770_000_000
SEEN = to_datetime(START_S)


@dataclass(frozen=True)
class Frame:
    """A location: its functions, innermost first (none: no symbols), at an address of a file."""

    functions: tuple[str, ...]
    address: int
    file: str = "/usr/bin/checkout"
    build_id: str | None = None  # by default each file has one of its own
    kind: int = 1
    source: str = ""  # the file of its functions; by default each has one of its own

    def __post_init__(self) -> None:
        if self.build_id is None:
            object.__setattr__(self, "build_id", f"gnu:{self.file.encode().hex()}")

    @property
    def location_id(self) -> int:
        assert self.build_id is not None
        return tables.location_id(self.build_id, self.file, self.address)

    def source_of(self, function: str) -> str:
        return self.source or f"{function}.c"

    @property
    def names(self) -> list[str]:
        """What a graph shows, outermost first."""
        return list(reversed(self.functions)) or [f"[{self._module.strip('[]')}]"]

    @property
    def names_with_address(self) -> list[str]:
        """What is shown where code without names is told apart by its address."""
        return list(reversed(self.functions)) or [f"{self._module}+{self.address:#x}"]

    @property
    def _module(self) -> str:
        return self.file.rsplit("/", 1)[-1] or "unknown"


def frame(name: str, address: int = 0) -> Frame:
    return Frame((name,) if name else (), address or abs(hash(name)) % 2**40)


@dataclass
class Sample:
    stack: tuple[Frame, ...]  # root first; () is stack ID 0
    value: int = 10_000_000
    count: int = 1
    labels: dict[str, str] = field(default_factory=lambda: {"service": "checkout"})
    time_s: float = START_S + 1
    trace_id: bytes = NO_TRACE
    span_id: bytes = NO_SPAN
    host: str = "host-1"
    profile_type: str = DEFAULT_PROFILE_TYPE


def request_labels(labels: dict[str, str]) -> str:
    """What requests have of the labels of their series, with the default setting."""
    return RequestLabels(["service_version"]).choose(sorted(labels.items()))


def stack_id(stack: tuple[Frame, ...]) -> int:
    return path_ids(stack)[-1] if stack else 0


def path_ids(stack: tuple[Frame, ...]) -> list[int]:
    """Node IDs, root first."""
    ids: list[int] = []
    for part in stack:
        ids.append(node_id(ids[-1] if ids else 0, part.location_id))
    return ids


def fill(client: Client, samples: list[Sample], nodes: bool = True, locations: bool = True) -> None:
    """Inserts samples and what they refer to."""
    insert_samples(client, samples)
    stacks = {sample.stack for sample in samples}
    if nodes:
        insert_nodes(client, stacks)
    if locations:
        insert_locations(client, {part for stack in stacks for part in stack})


def insert_samples(client: Client, samples: list[Sample]) -> None:
    rows = [
        {
            "profile_type": s.profile_type, "service": s.labels.get("service", ""),
            "series_id": series_id(s.labels.items()), "host_id": s.host, "time": to_datetime(s.time_s),
            "stack_id": stack_id(s.stack), "trace_id": s.trace_id, "span_id": s.span_id, "count": s.count,
            "value": s.value, "request_labels": request_labels(s.labels),
        }
        for s in samples
    ]  # fmt: skip
    insert_rows(client, "samples", rows)
    insert_series(client, [s.labels for s in samples], SEEN)


def insert_nodes(client: Client, stacks: set[tuple[Frame, ...]]) -> None:
    rows = {}
    for stack in stacks:
        ids = path_ids(stack)
        for node, parent, part in zip(ids, [0, *ids], stack, strict=False):
            rows[node] = {"node_id": node, "parent_id": parent, "location_id": part.location_id, "last_seen": SEEN}
    insert_rows(client, "nodes", list(rows.values()))


def insert_locations(client: Client, frames: set[Frame], version: int | None = None) -> None:
    """Inserts locations; their version is by default 1 with names and 0 without."""
    rows = [
        {
            "location_id": part.location_id, "kind": part.kind, "build_id": part.build_id, "file": part.file,
            "address": part.address, "version": (1 if part.functions else 0) if version is None else version,
            "lines": [(name, part.source_of(name), 10 + i, 10) for i, name in enumerate(part.functions)],
            "last_seen": SEEN,
        }
        for part in frames
    ]  # fmt: skip
    insert_rows(client, "locations", rows)


def random_samples(seed: int, count: int = 300) -> list[Sample]:
    """Recursion, inlined frames, frames without symbols, samples without stack; several services and versions."""
    rng = random.Random(seed)
    names = ["main", "serve", "parse;x", "alloc", "λ\nf", "memcpy"]
    frames = [
        Frame(
            tuple(rng.choice(names) for _ in range(rng.choice([0, 1, 1, 1, 2, 3]))),
            rng.randrange(2**40),
            rng.choice(["/usr/bin/checkout", "/lib/libc.so.6", ""]),
        )
        for _ in range(30)
    ]
    stacks = [tuple(rng.choice(frames) for _ in range(rng.randrange(0, 12))) for _ in range(40)]
    return [
        Sample(
            rng.choice(stacks),
            value=rng.choice([10_000_000, 52_631_578, -10_000_000, 0, 1]),
            count=rng.choice([1, 1, 2, -1]),
            labels={"service": rng.choice(["checkout", "cart"]), "version": rng.choice(["1.4.1", "1.5", ""])},
            time_s=START_S + rng.randrange(600),
            trace_id=rng.choice([NO_TRACE, NO_TRACE, b"a" * 16, b"b" * 16]),
        )
        for _ in range(count)
    ]
