"""Questions to a running icestream over HTTP."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from typing import Any

from prometheus_client.samples import Sample

from icestream.metrics import parse_metrics

_TIMEOUT_S = 30.0


class AskError(Exception):
    """No answer, or an error; the message says which."""


def ask(address: str, path: str, **query: Any) -> Any:
    """The JSON that HOST:PORT answers. Raises AskError."""
    return json.loads(ask_text(address, path, **query))


def ask_text(address: str, path: str, **query: Any) -> str:
    """The text that HOST:PORT answers. Raises AskError."""
    given = {name: value for name, value in query.items() if value is not None}
    url = f"http://{address}{path}?{urllib.parse.urlencode(given)}"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        raise AskError(f"{url}: {error.code} {error.read(500).decode(errors='replace')}") from error
    except OSError as error:
        raise AskError(f"{url}: {error}") from error


def read_metrics(address: str) -> dict[str, list[Sample]]:
    """The samples at /metrics, by name. Raises AskError."""
    return parse_metrics(ask_text(address, "/metrics"))


def quantile(buckets: Sequence[Sample], q: float) -> float | None:
    """A quantile of a histogram's buckets, all label sets together, straight between bounds; None when it is empty.

    What lies beyond the last bound counts as that bound.
    """
    counts: dict[float, float] = {}
    for bucket in buckets:
        bound = float(bucket.labels["le"])
        counts[bound] = counts.get(bound, 0) + bucket.value
    bounds = sorted(counts)
    if not bounds or counts[bounds[-1]] == 0:
        return None
    rank = q * counts[bounds[-1]]
    low, below = 0.0, 0.0
    for bound in bounds:
        if counts[bound] >= rank:
            if bound == float("inf"):
                return low
            return low + (bound - low) * (rank - below) / (counts[bound] - below)
        low, below = bound, counts[bound]
    return low


def until(deadline: float) -> bool:
    """False when the monotonic time `deadline` has come, else True after a short pause: for `while until(...)`."""
    if time.monotonic() >= deadline:
        return False
    time.sleep(0.2)
    return True
