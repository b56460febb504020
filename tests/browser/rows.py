"""Call trees and samples as rows of the tables."""

import functools
import re
from dataclasses import dataclass, field
from datetime import datetime, timezone

import numpy as np
from clickhouse_connect.driver.client import Client

from icestream.ids import combine, mapping_id, series_id
from icestream.topics import DEFAULT_PROFILE_TYPE
from tests.browser.shop import Tree
from tests.data.tables import insert_columns, insert_rows, insert_series, to_datetime

PERIOD_NS = 52_631_579  # 19 samples a second

_KINDS = {"[kernel]": 2, "[jit]": 4, "": 0}


@dataclass
class Samples:
    """n samples of one series, in columns."""

    stacks: np.ndarray  # uint64 (n,), node IDs
    times_ms: np.ndarray  # int64 (n,)
    labels: dict[str, str]
    profile_type: str = DEFAULT_PROFILE_TYPE
    value: int | np.ndarray = PERIOD_NS
    traces: np.ndarray = field(init=False)  # uint8 (n, 16), zeros: none
    spans: np.ndarray = field(init=False)  # uint8 (n, 8)

    def __post_init__(self) -> None:
        self.traces = np.zeros((len(self.stacks), 16), np.uint8)
        self.spans = np.zeros((len(self.stacks), 8), np.uint8)


def insert_tree(client: Client, tree: Tree) -> np.ndarray:
    """Inserts nodes and locations; the node IDs, by row."""
    seen = datetime.now(timezone.utc)
    locations = [_location(name, module, seen) for name, module in zip(tree.name, tree.module, strict=True)]
    mappings = [_mapping(str(row["build_id"]), module) for row, module in zip(locations, tree.module, strict=True)]
    location_ids = combine(np.array(mappings, np.uint64), np.array([row["address"] for row in locations], np.uint64))
    node_ids = _node_ids(tree.parent, location_ids)
    parents = np.where(np.array(tree.parent) < 0, 0, node_ids[tree.parent])
    insert_columns(client, "nodes", node_id=node_ids, parent_id=parents, location_id=location_ids, last_seen=seen)
    by_id = dict(zip(location_ids.tolist(), locations, strict=True))
    insert_rows(client, "locations", [{"location_id": location, **row} for location, row in by_id.items()])
    return node_ids


def _node_ids(parent: list[int], location_ids: np.ndarray) -> np.ndarray:
    """The IDs of nodes, level by level; parents come first."""
    depth = np.zeros(len(parent), int)
    for node, above in enumerate(parent):
        depth[node] = depth[above] + 1 if above >= 0 else 0
    node_ids = np.zeros(len(parent), np.uint64)
    for level in range(depth.max() + 1):
        nodes = np.flatnonzero(depth == level)
        above = node_ids[np.array(parent)[nodes]] if level else np.zeros(len(nodes), np.uint64)
        node_ids[nodes] = combine(above, location_ids[nodes])
    return node_ids


def insert_samples(client: Client, samples: Samples) -> None:
    labels = samples.labels
    insert_columns(
        client,
        "samples",
        profile_type=samples.profile_type,
        service=labels["service"],
        series_id=series_id(labels.items()),
        host_id=labels.get("host", ""),
        time=[moment(ms) for ms in samples.times_ms.tolist()],
        stack_id=samples.stacks,
        trace_id=[row.tobytes() for row in samples.traces],
        span_id=[row.tobytes() for row in samples.spans],
        value=samples.value,
    )
    insert_series(client, [labels], datetime.now(timezone.utc))


def moment(unix_milli: int) -> datetime:
    return to_datetime(unix_milli / 1000)


def _location(name: str, module: str, seen: datetime) -> dict[str, object]:
    """A row of `locations` but for its ID; `module+0x...` has no symbols."""
    bare = re.fullmatch(r".*\+0x([0-9a-f]+)", name)
    address = int(bare[1], 16) if bare else abs(_hash(name)) % 2**40
    build_id = f"gnu:{_hash(module):016x}" if module else ""
    lines = [] if bare else [(name, _source(name, module), address % 900 + 10, address % 900 + 4)]
    return {
        "kind": _KINDS.get(module, 1), "build_id": build_id,
        "file": _path(module), "address": address, "version": len(lines), "lines": lines, "last_seen": seen,
    }  # fmt: skip


_mapping = functools.cache(mapping_id)


def _hash(text: str) -> int:
    return _mapping("", text)


def _source(name: str, module: str) -> str:
    if module == "[jit]":
        return name.rpartition(":")[2]
    return "" if module in ("[kernel]", "") else f"/build/{module.split('.')[0]}/{_hash(name) % 40}.c"


def _path(module: str) -> str:
    if not module or module.startswith("["):
        return module
    return f"/usr/lib/x86_64-linux-gnu/{module}" if ".so" in module else f"/usr/bin/{module}"
