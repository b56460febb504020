"""Labels of senders as labels of series: their names, and limits."""

import re
from collections import Counter
from collections.abc import Iterable

from icestream.labels.excess_labels import without_excess
from icestream.messages.checks import MAX_ID, MAX_LABELS, Labels

MAX_VALUE = 200
"""Characters of a label's value that are kept, as by collectors; longer ones are cut."""
MAX_NAME = 100

_WORD = re.compile(r"\W", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_OURS = {"service_name": "service", "hostname": "host", "operation": "span_name"}
"""Labels of other tools -> the labels of docs/labels.md that they are. A selector with `operation` asks for the
operation of samples, which `span_name` tells, so a label `operation` could not be selected."""
_HOST_IDS = ("host_id", "host", "instance", "pod", "service")
"""The first of these labels that a profile has is the host ID of its batches: it spreads them over the partitions."""


def label_name(name: str) -> str:
    """Returns the name as selectors can write it, and as docs/labels.md calls it."""
    name = _WORD.sub("_", name)[:MAX_NAME]
    if name[:1].isdigit():
        name = f"_{name}"
    return _OURS.get(name, name)


def to_labels(pairs: Iterable[tuple[str, str]], dropped: Counter[str] | None = None) -> Labels:
    """Returns the labels of a series, without those that have no name, no value, or a name that begins with two
    underscores. If two labels have one name, the later one counts. If there are too many, those of docs/labels.md are
    kept, and then those whose names come first in the alphabet. Counts in `dropped` what is beyond the limits."""
    found = {}
    counts = Counter[str]() if dropped is None else dropped
    for name, value in pairs:
        if value and name and not name.startswith("__"):
            found[label_name(name)] = _CONTROL.sub("?", value[:MAX_VALUE])
            if len(value) > MAX_VALUE:
                counts["label_values"] += 1
            if len(name) > MAX_NAME:
                counts["label_names"] += 1
    if len(found) > MAX_LABELS:
        counts["excess_labels"] += len(found) - MAX_LABELS
    return tuple((name, found[name]) for name in without_excess(found, MAX_LABELS))


def host_id(labels: Labels) -> str:
    """Returns the host ID of the batches of a profile with these labels."""
    given = dict(labels)
    text = next((given[name] for name in _HOST_IDS if name in given), "gateway")
    return text.encode()[:MAX_ID].decode(errors="ignore")
