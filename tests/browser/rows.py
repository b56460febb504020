"""Call trees and samples as rows of the tables."""

import re
from dataclasses import dataclass, field
from datetime import datetime, timezone

import numpy as np
from clickhouse_connect.driver.client import Client

from icestream.ids import combine, mapping_id, series_id
from icestream.topics import DEFAULT_PROFILE_TYPE
from tests.browser.shop import Tree

PERIOD_NS = 52_631_579  # 19 samples a second

_KINDS = {"[kernel]": 2, "[jit]": 4, "": 0}


@dataclass
class Samples:
    """n samples of one series, in columns."""

    stacks: np.ndarray  # uint64 (n,), node IDs
    times_ms: np.ndarray  # int64 (n,)
    labels: dict[str, str]
    traces: np.ndarray = field(init=False)  # uint8 (n, 16), zeros: none
    spans: np.ndarray = field(init=False)  # uint8 (n, 8)

    def __post_init__(self) -> None:
        self.traces = np.zeros((len(self.stacks), 16), np.uint8)
        self.spans = np.zeros((len(self.stacks), 8), np.uint8)


def insert_tree(client: Client, tree: Tree) -> np.ndarray:
    """Inserts nodes and locations; the node IDs, by row."""
    locations = [_location(name, module) for name, module in zip(tree.name, tree.module, strict=True)]
    location_ids = np.array([row[0] for row in locations], np.uint64)
    node_ids = np.zeros(len(locations), np.uint64)
    for node, parent in enumerate(tree.parent):  # parents come first
        above = node_ids[parent : parent + 1] if parent >= 0 else np.zeros(1, np.uint64)
        node_ids[node] = combine(above, location_ids[node : node + 1])[0]
    parents = np.where(np.array(tree.parent) < 0, 0, node_ids[tree.parent])
    seen = datetime.now(timezone.utc)
    client.insert(
        "nodes",
        [node_ids, parents, location_ids, [seen] * len(node_ids)],
        column_names=["node_id", "parent_id", "location_id", "last_seen"],
        column_oriented=True,
    )
    names = ["location_id", "kind", "build_id", "file", "address", "version", "lines", "last_seen"]
    distinct = {row[0]: [*row, seen] for row in locations}
    client.insert("locations", list(distinct.values()), column_names=names)
    return node_ids


def insert_samples(client: Client, samples: Samples) -> None:
    count, labels = len(samples.stacks), samples.labels
    series = series_id(labels.items())
    columns = {
        "profile_type": [DEFAULT_PROFILE_TYPE] * count,
        "service": [labels["service"]] * count,
        "series_id": np.full(count, series, np.uint64),
        "host_id": [labels.get("host", "")] * count,
        "time": [moment(ms) for ms in samples.times_ms.tolist()],
        "pid": np.full(count, 7, np.uint32),
        "tid": np.full(count, 8, np.uint32),
        "stack_id": samples.stacks,
        "trace_id": [row.tobytes() for row in samples.traces],
        "span_id": [row.tobytes() for row in samples.spans],
        "count": np.ones(count, np.int32),
        "value": np.full(count, PERIOD_NS, np.int64),
    }
    client.insert("samples", list(columns.values()), column_names=list(columns), column_oriented=True)
    row = [series, labels, datetime.now(timezone.utc)]
    client.insert("series", [row], column_names=["series_id", "labels", "last_seen"])


def moment(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, timezone.utc)


def _location(name: str, module: str) -> list[object]:
    """A row of `locations` without `last_seen`; `module+0x...` has no symbols."""
    kind = _KINDS.get(module, 1)
    bare = re.fullmatch(r".*\+0x([0-9a-f]+)", name)
    address = int(bare[1], 16) if bare else abs(_hash(name)) % 2**40
    identity = mapping_id(f"gnu:{_hash(module):016x}" if module else "", module)
    location = int(combine(np.array([identity], np.uint64), np.array([address], np.uint64))[0])
    lines = [] if bare else [(name, _source(name, module), address % 900 + 10, address % 900 + 4)]
    return [location, kind, f"gnu:{_hash(module):016x}" if module else "", _path(module), address, len(lines), lines]


def _hash(text: str) -> int:
    return mapping_id("", text)


def _source(name: str, module: str) -> str:
    if module == "[jit]":
        return name.rpartition(":")[2]
    return "" if module in ("[kernel]", "") else f"/build/{module.split('.')[0]}/{_hash(name) % 40}.c"


def _path(module: str) -> str:
    if not module or module.startswith("["):
        return module
    return f"/usr/lib/x86_64-linux-gnu/{module}" if ".so" in module else f"/usr/bin/{module}"
