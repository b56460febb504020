"""The labels that requests have of their process: a few of those of its series, as one text in activity and tables.

The text is a JSON object, its names in order, without spaces: equal sets of labels are equal texts. A set without
labels is an empty text.
"""

import json
import re
import time
from collections.abc import Callable, Iterable
from functools import lru_cache

from icestream.labels.operations import OperationNames

MOST_SETS = 1000
"""Sets of labels of a service in a day: a label with a new value each time would make rows of every request."""
MAX_SET = 1000
"""Characters of a set; collectors cut longer texts."""
MOST_NAMES = 8
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,99}")
_NOT_OF_PROCESSES = frozenset(("service", "operation", "span_name", "span_id", "trace_id", "thread_name"))
"""What requests have anyway, and what differs within a process."""


class BadNames(ValueError):
    """No names of labels that requests can have; the message says what was expected and what came."""


def label_names(text: str) -> tuple[str, ...]:
    """Returns the names in a text that separates them by commas, in order. Raises BadNames."""
    names = tuple(sorted({name.strip() for name in text.split(",")} - {""}))
    if len(names) > MOST_NAMES:
        raise BadNames(f"expected at most {MOST_NAMES} labels, got {len(names)}")
    for name in names:
        if not _NAME.fullmatch(name) or name in _NOT_OF_PROCESSES:
            raise BadNames(f"expected labels of processes, as service_version,pod, got {name[:100]!r}")
    return names


def label_set(labels: Iterable[tuple[str, str]]) -> str:
    """Returns a set of labels as text. `labels`: (name, value) in order, no name twice, no empty value."""
    pairs = dict(labels)
    return json.dumps(pairs, ensure_ascii=False, separators=(",", ":")) if pairs else ""


@lru_cache(10_000)
def is_label_set(text: str) -> bool:
    """Whether a text is one that `label_set` returns."""
    if not text:
        return True
    if len(text) > MAX_SET or not text.startswith('{"'):
        return False
    try:
        pairs = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not all(isinstance(value, str) and value for value in pairs.values()):
        return False
    return label_set(sorted(pairs.items())) == text


class RequestLabels:
    """Chooses the labels with these names. Keeps the first MOST_SETS sets that a service has within a day, of the 1,000
    services that were used last; the others become empty, as do sets of more than MAX_SET characters. For any thread.
    """

    def __init__(
        self, names: Iterable[str] = (), limit: int = MOST_SETS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._names = frozenset(names)
        self._sets = OperationNames(limit, clock, instead="")

    @property
    def emptied(self) -> int:
        """How often a set became empty."""
        return self._sets.replaced

    def choose(self, labels: Iterable[tuple[str, str]]) -> str:
        """Returns the set of a process as text. `labels`: of a series of it, in order."""
        if not self._names:
            return ""
        service = ""
        chosen = []
        for label in labels:
            if label[0] in self._names:
                chosen.append(label)
            elif label[0] == "service":
                service = label[1]
        return self._sets.limited(service, label_set(chosen), MAX_SET)


NO_LABELS = RequestLabels()
"""Requests have none."""
