"""A made-up shop whose profile fills the page: services, releases, requests, and, where asked for, a very large tree."""

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
from clickhouse_connect.driver.client import Client

from icestream.ids import combine, mapping_id, series_id
from icestream.topics import DEFAULT_PROFILE_TYPE

PERIOD_NS = 52_631_579  # 19 samples a second
MINUTES = 30
WIDE_NODES = 50_000

HOSTILE_FUNCTION = '<img src=x onerror="window.hacked=1">'
HOSTILE_LABEL = '"><script>window.hacked=1</script>'

_KINDS = {"[kernel]": 2, "[jit]": 4, "": 0}
_LINE = re.compile(r"( *)(.+?)@(\S*)(?: (\d+))?")


@dataclass
class Tree:
    """A call tree in level order: columns by node."""

    parent: list[int]
    name: list[str]
    module: list[str]
    weight: list[int]


def read_services(path: Path = Path(__file__).with_name("shop.txt")) -> dict[str, tuple[int, Tree]]:
    """Each service's share of the samples and its call tree."""
    services: dict[str, tuple[int, Tree]] = {}
    open_nodes: list[int] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        if not line.startswith(" "):
            name, share = line.split(" #")
            tree = Tree([], [], [], [])
            services[name] = (int(share), tree)
            continue
        match = _LINE.fullmatch(line)
        assert match, line
        depth = len(match[1]) // 2 - 1
        open_nodes[depth:] = [len(tree.parent)]
        tree.parent.append(open_nodes[depth - 1] if depth else -1)
        tree.name.append(match[2])
        tree.module.append(match[3])
        tree.weight.append(int(match[4] or 0))
    return services


def wide_tree(nodes: int = WIDE_NODES, seed: int = 1) -> Tree:
    """A tree of many nodes, 60 levels deep, its values as uneven as real ones."""
    random = np.random.default_rng(seed)
    parent, depth = [-1], [0]
    for node in range(1, nodes):
        above = int(node * random.random() ** 0.35) if node > 6 else node - 1
        parent.append(above if depth[above] < 60 else parent[above])
        depth.append(depth[parent[node]] + 1)
    weight = np.maximum(1, random.pareto(1.1, nodes)).astype(int)
    name = [f"wide::function_{i % 4000}<{i % 7}>" for i in range(nodes)]
    return Tree(parent, name, [f"libwide{i % 12}.so" for i in range(nodes)], weight.tolist())


def hostile_tree() -> Tree:
    """Names that would do harm on a page that takes them for markup."""
    return Tree([-1, 0, 1], ["main", HOSTILE_FUNCTION, "{{constructor}}`'\"\u202e\u0000"], ["/bin/x", HOSTILE_LABEL, ""], [1, 5, 3])


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
    client.insert("locations", [[*row, seen] for row in {row[0]: row for row in locations}.values()], column_names=names)
    return node_ids


def insert_samples(client: Client, stacks: np.ndarray, times_ms: np.ndarray, labels: dict[str, str], traces: np.ndarray, spans: np.ndarray) -> None:
    """One sample a row: `traces` (n, 16) and `spans` (n, 8) are uint8, zeros for none."""
    count = len(stacks)
    series = series_id(labels.items())
    service, host = labels.get("service", ""), labels.get("host", "host-1")
    columns = {
        "profile_type": [DEFAULT_PROFILE_TYPE] * count,
        "service": [service] * count,
        "series_id": np.full(count, series, np.uint64),
        "host_id": [host] * count,
        "ts": [datetime.fromtimestamp(ms / 1000, timezone.utc) for ms in times_ms.tolist()],
        "pid": np.full(count, 7, np.uint32),
        "tid": np.full(count, 8, np.uint32),
        "stack_id": stacks,
        "trace_id": [row.tobytes() for row in traces],
        "span_id": [row.tobytes() for row in spans],
        "count": np.ones(count, np.int32),
        "value": np.full(count, PERIOD_NS, np.int64),
    }
    client.insert("samples", list(columns.values()), column_names=list(columns), column_oriented=True)
    row = [series, labels, datetime.now(timezone.utc)]
    client.insert("series", [row], column_names=["series_id", "labels", "last_seen"])


def _location(name: str, module: str) -> list[object]:
    """A row of `locations` without `last_seen`; `module+0x...` has no symbols."""
    kind = _KINDS.get(module, 1)
    bare = re.fullmatch(r".*\+0x([0-9a-f]+)", name)
    address = int(bare[1], 16) if bare else abs(hash_of(name)) % 2**40
    identity = mapping_id(f"gnu:{hash_of(module):016x}" if module else "", module)
    location = int(combine(np.array([identity], np.uint64), np.array([address], np.uint64))[0])
    lines = [] if bare else [(name, _source(name, module), address % 900 + 10, address % 900 + 4)]
    return [location, kind, f"gnu:{hash_of(module):016x}" if module else "", _path(module), address, len(lines), lines]


def hash_of(text: str) -> int:
    return mapping_id("", text)


def _source(name: str, module: str) -> str:
    if module == "[jit]":
        return name.rpartition(":")[2]
    return "" if module in ("[kernel]", "") else f"/build/{module.split('.')[0]}/{hash_of(name) % 40}.c"


def _path(module: str) -> str:
    if not module or module.startswith("["):
        return module
    return f"/usr/lib/x86_64-linux-gnu/{module}" if ".so" in module else f"/usr/bin/{module}"
