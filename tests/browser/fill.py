"""Half an hour of the shop in the tables: two releases, requests, and the odd ones."""

from dataclasses import dataclass

import numpy as np
from clickhouse_connect.driver.client import Client

from icestream.topics import DEFAULT_PROFILE_TYPE
from tests.browser.rows import PERIOD_NS, Samples, insert_samples, insert_tree
from tests.browser.shop import HOSTILE_LABEL, REARRANGING_LABEL, Tree, hostile_tree, read_services, wide_tree
from tests.browser.traffic import cut_into_requests
from tests.data.tables import insert_columns, to_datetime

MINUTES = 30
MEMORY_IN_USE = "memory:inuse_space:bytes:space:bytes"
MEAN_IN_USE = 128 * 2**20
SAMPLES_A_SHARE = 1_500
RELEASES = ("1.4.2", "1.5.0")
FASTER = {"rule_matches": 3.2, "sre_search": 2.6, "sha256_block": 0.25, "EVP_Digest": 0.3, "inflate_fast": 0.0}
"""What release 1.5.0 of checkout does more or less of."""


@dataclass(frozen=True)
class Filled:
    """Unix seconds."""

    start: int
    middle: int
    end: int


def fill(client: Client, end_s: int, seed: int = 7) -> Filled:
    """The shop's samples from `MINUTES` before `end_s`; release 1.5.0 from the middle on."""
    random = np.random.default_rng(seed)
    filled = Filled(end_s - MINUTES * 60, end_s - MINUTES * 30, end_s)
    for service, (share, tree) in read_services().items():
        ids = insert_tree(client, tree)
        labels = {"service": service, "host": f"node-{1 + len(service) % 3}", "environment": "production"}
        for release, since in zip(RELEASES, (filled.start, filled.middle), strict=True):
            node = _heaviest_more_often(random, tree, share, service == "checkout" and release == RELEASES[1])
            times = _busy_times(random, len(node), since, MINUTES * 30)
            samples = Samples(ids[node], times, labels | {"version": release})
            if service == "checkout":
                cut_into_requests(client, random, tree, node, samples)
            insert_samples(client, samples)
        if service == "checkout":
            fill_memory(client, ids[tree.name.index("py::handle:/app/checkout/server.py")], filled, labels)
    ids = insert_tree(client, hostile_tree())
    times = np.full(len(ids), (filled.middle + 60) * 1000)
    odd = {"service": "odd", "service_version": "2.0/rc", "note": HOSTILE_LABEL, "host": "node-9"}
    odd["team"] = REARRANGING_LABEL
    insert_samples(client, Samples(ids, times, odd))
    return filled


def fill_memory(client: Client, stack: int, filled: Filled, labels: dict[str, str]) -> None:
    """A profile of the memory in use every five minutes: 64 MiB until the middle, 192 MiB then."""
    times = np.arange(filled.start, filled.end, 300)
    value = np.where(times < filled.middle, 64, 192) * 2**20
    insert_samples(client, Samples(np.full(len(times), stack), times * 1000, labels, MEMORY_IN_USE, value))


def fill_wide(client: Client, end_s: int) -> int:
    """A service `wide` in the ten minutes before, whose graph has 50,000 nodes; the sum of its samples in ns."""
    tree = wide_tree()
    stacks = np.repeat(insert_tree(client, tree), np.minimum(tree.weight, 20))
    times = np.linspace((end_s - 600) * 1000, end_s * 1000 - 1, len(stacks)).astype(np.int64)
    insert_samples(client, Samples(stacks, times, {"service": "wide"}))
    return len(stacks) * PERIOD_NS


def fill_versions(client: Client, end_s: int) -> None:
    """Two versions of a service `cart`, side by side in the ten minutes before."""
    stacks = insert_tree(client, Tree([-1], ["hash_cart"], ["/bin/cart"], [1]))
    for version, count in (("1.9", 100), ("1.10", 120)):
        times = np.linspace((end_s - 600) * 1000, end_s * 1000 - 1, count).astype(np.int64)
        insert_samples(
            client, Samples(np.repeat(stacks, count), times, {"service": "cart", "service_version": version})
        )


def fill_with_a_gap(client: Client, end_s: int) -> None:
    """Batches of one host in the ten minutes before; three are missing."""
    sequence = np.array([n for n in range(1, 121) if n not in (50, 51, 52)])
    insert_batches(client, HOSTILE_LABEL, end_s, sequence)


def insert_batches(client: Client, host: str, end_s: int, sequence: np.ndarray, **more: object) -> None:
    """Batch n, of at most 120, was published 5 s x n after `end_s` - 10 minutes."""
    times = [to_datetime(end_s - 601 + 5 * int(n)) for n in sequence]
    insert_columns(
        client, "batches", kind="samples", collector=host, host_id=host, started_unix_nano=1, parts=1,
        outputs=1, profile_type=DEFAULT_PROFILE_TYPE, sequence=sequence, value=PERIOD_NS, count=1,
        published_time=times, first_time=times, last_time=times, **more,  # by the last one they are dropped
    )  # fmt: skip


def _heaviest_more_often(random: np.random.Generator, tree: Tree, share: int, newer: bool) -> np.ndarray:
    weight = np.array(tree.weight, float)
    if newer:
        for part, factor in FASTER.items():
            weight[[part in name for name in tree.name]] *= factor
    return random.choice(len(weight), size=share * SAMPLES_A_SHARE, p=weight / weight.sum())


def _busy_times(random: np.random.Generator, count: int, since_s: int, seconds: int) -> np.ndarray:
    """Milliseconds, sorted; busier in waves and with one peak."""
    at = np.linspace(0, 1, 400)
    load = 1 + 0.25 * np.sin(at * 19) + 0.12 * random.standard_normal(400) + 1.6 * np.exp(-(((at - 0.62) / 0.035) ** 2))
    load = np.maximum(load, 0.1)
    cell = random.choice(400, size=count, p=load / load.sum())
    return np.sort(since_s * 1000 + (cell + random.random(count)) / 400 * seconds * 1000).astype(np.int64)
