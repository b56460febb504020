"""Questions to a running icestream over HTTP."""

import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

_TIMEOUT_S = 30.0
_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


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


def read_metrics(address: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Name -> (labels, value) of everything at /metrics. Raises AskError."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for line in ask_text(address, "/metrics").splitlines():
        if match := _SAMPLE.fullmatch(line):
            labels = dict(_LABEL.findall(match[2] or ""))
            found.setdefault(match[1], []).append((labels, float(match[3])))
    return found


def quantile(buckets: list[tuple[dict[str, str], float]], q: float) -> float | None:
    """A quantile of a histogram's buckets, all label sets together, straight between bounds; None when it is empty.

    What lies beyond the last bound counts as that bound.
    """
    counts: dict[float, float] = {}
    for labels, value in buckets:
        bound = float(labels["le"])
        counts[bound] = counts.get(bound, 0) + value
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
