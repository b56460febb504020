"""Which labels stay if there are too many."""

from collections.abc import Collection

from icestream.labels.otlp_labels import LABELS

DESCRIBED = frozenset((*LABELS.values(), "cgroup", "comm", "details", "span_name", "unit"))
"""The labels of docs/labels.md: what selectors, operations and the page ask for."""


def without_excess(names: Collection[str], most: int) -> list[str]:
    """Returns at most so many of the names, sorted: those of docs/labels.md, then the first ones in the alphabet."""
    if len(names) <= most:
        return sorted(names)
    return sorted(sorted(names, key=lambda name: (name not in DESCRIBED, name))[:most])
