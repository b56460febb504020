"""Half an hour of the shop as rows of the tables: two releases, requests with spans, and the odd ones."""

from dataclasses import dataclass
from datetime import datetime, timezone

import numpy as np
from clickhouse_connect.driver.client import Client

from tests.browser.shop import (
    HOSTILE_LABEL,
    MINUTES,
    PERIOD_NS,
    Tree,
    hostile_tree,
    insert_samples,
    insert_tree,
    read_services,
    wide_tree,
)

SAMPLES_A_SHARE = 3_000
RELEASES = ("1.4.2", "1.5.0")
_FASTER = {"rule_matches": 3.2, "sre_search": 2.6, "sha256_block": 0.25, "EVP_Digest": 0.3, "inflate_fast": 0.0}
"""What release 1.5.0 does more or less of."""

_SPAN_OF = {"price": "price", "sign": "sign token", "reserve": "reserve stock", "to_json": "render"}
_OPERATIONS = ("POST /checkout", "GET /cart")


@dataclass(frozen=True)
class Filled:
    """Unix seconds."""

    start: int
    middle: int
    end: int


def fill(client: Client, end_s: int, seed: int = 7) -> Filled:
    """The shop's samples from `MINUTES` before `end_s`; release 1.5.0 from the middle on."""
    random = np.random.default_rng(seed)
    start_s = end_s - MINUTES * 60
    middle_s = (start_s + end_s) // 2
    for service, (share, tree) in read_services().items():
        ids = insert_tree(client, tree)
        for release, since, until in zip(RELEASES, (start_s, middle_s), (middle_s, end_s), strict=True):
            _fill_release(client, random, service, release, tree, ids, share, since, until)
    strange = hostile_tree()
    ids = insert_tree(client, strange)
    nothing = np.zeros((len(ids), 24), np.uint8)
    times = np.full(len(ids), (middle_s + 60) * 1000)
    labels = {"service": "odd", "note": HOSTILE_LABEL, "host": "node-9"}
    insert_samples(client, ids, times, labels, nothing[:, :16], nothing[:, 16:])
    return Filled(start_s, middle_s, end_s)


def fill_wide(client: Client, end_s: int) -> int:
    """A service `wide` in the ten minutes before, whose graph has 50,000 nodes; the sum of its samples in ns."""
    tree = wide_tree()
    ids = insert_tree(client, tree)
    stacks = np.repeat(ids, np.minimum(tree.weight, 20))
    nothing = np.zeros((len(stacks), 24), np.uint8)
    times = np.linspace((end_s - 600) * 1000, end_s * 1000 - 1, len(stacks)).astype(np.int64)
    insert_samples(client, stacks, times, {"service": "wide"}, nothing[:, :16], nothing[:, 16:])
    return len(stacks) * PERIOD_NS


def _fill_release(
    client: Client, random: np.random.Generator, service: str, release: str, tree: Tree, ids: np.ndarray, share: int, since: int, until: int
) -> None:
    weight = np.array(tree.weight, float)
    if service == "checkout" and release == RELEASES[1]:
        for part, factor in _FASTER.items():
            weight[[part in name for name in tree.name]] *= factor
    count = share * SAMPLES_A_SHARE // 2
    row = random.choice(len(ids), size=count, p=weight / weight.sum())
    times = _busy_times(random, count, since, until)
    traces, spans = np.zeros((count, 16), np.uint8), np.zeros((count, 8), np.uint8)
    if service == "checkout":
        _assign_requests(client, random, tree, row, times, traces, spans)
    labels = {"service": service, "version": release, "host": f"node-{1 + len(service) % 3}", "environment": "production"}
    insert_samples(client, ids[row], times, labels, traces, spans)


def _busy_times(random: np.random.Generator, count: int, since: int, until: int) -> np.ndarray:
    """Milliseconds, sorted; busier in waves and with one peak."""
    at = np.linspace(0, 1, 400)
    load = 1 + 0.25 * np.sin(at * 19) + 0.12 * random.standard_normal(400) + 1.6 * np.exp(-(((at - 0.62) / 0.035) ** 2))
    cell = random.choice(400, size=count, p=np.maximum(load, 0.1) / np.maximum(load, 0.1).sum())
    return np.sort(since * 1000 + (cell + random.random(count)) / 400 * (until - since) * 1000).astype(np.int64)


def _assign_requests(
    client: Client, random: np.random.Generator, tree: Tree, row: np.ndarray, times: np.ndarray, traces: np.ndarray, spans: np.ndarray
) -> None:
    """Cuts the samples below `handle` into requests with a span for each step; inserts their spans and activity."""
    path = _paths(tree)
    steps = ["".join(span for part, span in _SPAN_OF.items() if f"py::{part}:" in path[node]) for node in range(len(path))]
    operation = [next((o for o in _OPERATIONS if f"py::{o.split(' /')[0]}_" in p), None) for p in path]
    activity, known = [], []
    for kind in _OPERATIONS:
        of_kind = np.flatnonzero([operation[node] == kind for node in row])
        sizes = 1 + random.geometric(0.06, size=len(of_kind))
        for part in np.split(of_kind, np.cumsum(sizes)[:300])[:-1]:
            if not len(part):
                break
            trace, root = random.bytes(16), random.bytes(8)
            begin, end = int(times[part[0]]), int(times[part[-1]]) + 60
            known.append([trace, root, bytes(8), kind, "checkout", "node-3", _moment(begin), _moment(end)])
            for step in sorted({steps[node] for node in row[part]}):
                mine = part[[steps[node] == step for node in row[part]]]
                span = random.bytes(8) if step else root
                traces[mine], spans[mine] = np.frombuffer(trace, np.uint8), np.frombuffer(span, np.uint8)
                if step:
                    known.append([trace, span, root, step, "checkout", "node-3", _moment(begin), _moment(end)])
                clock = int(len(mine) * PERIOD_NS * random.normal(1, 0.02))
                activity.append([trace, span, "node-3", "checkout", 7, 8, _moment(begin), (end - begin) * 10**6, clock])
    names = ["trace_id", "span_id", "host_id", "service", "pid", "tid", "start", "duration_ns", "cpu_ns"]
    client.insert("activity", activity, column_names=names)
    names = ["trace_id", "span_id", "parent_span_id", "name", "service", "host_id", "start", "end"]
    client.insert("spans", known, column_names=names)


def _paths(tree: Tree) -> list[str]:
    paths: list[str] = []
    for name, parent in zip(tree.name, tree.parent, strict=True):
        paths.append((paths[parent] + ";" if parent >= 0 else "") + name)
    return paths


def _moment(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, timezone.utc)
