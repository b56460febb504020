"""Requests: which samples belong to which, with spans and the threads' clocks."""

import numpy as np
from clickhouse_connect.driver.client import Client

from tests.browser.rows import PERIOD_NS, Samples, moment
from tests.browser.shop import Tree
from tests.data.tables import insert_rows

_OPERATIONS = {"POST /checkout": "py::POST_checkout:", "GET /cart": "py::GET_cart:"}
_STEPS = {"price": "py::price:", "sign token": "py::sign:", "reserve stock": "py::reserve:", "render": "py::to_json:"}
_OF_EACH = 300


def cut_into_requests(
    client: Client, random: np.random.Generator, tree: Tree, node: np.ndarray, samples: Samples
) -> None:
    """Gives samples below an operation their trace and span, and inserts the requests' spans and activity.

    `node` (n,) is each sample's node of the tree.
    """
    paths = tree.paths()
    operation, step = _word_of(paths, _OPERATIONS), _word_of(paths, _STEPS)
    activity: list[dict[str, object]] = []
    spans: list[dict[str, object]] = []
    for name in _OPERATIONS:
        rows = np.flatnonzero(operation[node] == name)
        ends = np.cumsum(1 + random.geometric(0.06, size=_OF_EACH))
        for part in np.split(rows, ends[ends < len(rows)])[:-1]:
            trace, root = random.bytes(16), random.bytes(8)
            begin, end = (int(samples.times_ms[row]) for row in part[[0, -1]])
            host, start = samples.labels["host"], moment(begin)
            request = {
                "trace_id": trace, "service": "checkout", "host_id": host, "start_time": start,
                "end_time": moment(end + 60), "operation": "",
            }  # fmt: skip
            spans.append(request | {"span_id": root, "parent_span_id": bytes(8), "name": name, "operation": name})
            for word in sorted(set(step[node[part]])):
                mine = part[step[node[part]] == word]
                span = random.bytes(8) if word else root
                samples.traces[mine] = np.frombuffer(trace, np.uint8)
                samples.spans[mine] = np.frombuffer(span, np.uint8)
                if word:
                    spans.append(request | {"span_id": span, "parent_span_id": root, "name": word})
                thread_cpu_ns = int(len(mine) * PERIOD_NS * random.normal(1, 0.02))
                activity.append({
                    "trace_id": trace, "span_id": span, "host_id": host, "service": "checkout", "start_time": start,
                    "duration_ns": (end - begin) * 10**6, "thread_cpu_ns": thread_cpu_ns,
                    "operation": name, "entry_span_id": root,
                })  # fmt: skip
    insert_rows(client, "activity", activity)
    insert_rows(client, "spans", spans)


def _word_of(paths: list[str], words: dict[str, str]) -> np.ndarray:
    """By node: the word whose function is on its path, or ""."""
    return np.array(["".join(word for word, function in words.items() if function in path) for path in paths])
