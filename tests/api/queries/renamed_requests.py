"""A store whose samples, intervals and spans of one request name their services differently, and sums over them.

Some series have a label `span_name`: the operation of their samples that have no other one.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from api.queries.selection.selection import Selection
from api.queries.selection.selector import Matcher
from icestream.ids import series_id
from tests.api.queries.request_store import Requests, Rows
from tests.api.queries.rollup_store import LABELS, T0
from tests.data.tables import NO_TRACE, insert_series, to_datetime

_NAMES = ("cart", "checkout", "pay")
SPAN_NAMES = ("GET /a", "render")
_LABELS = LABELS + [labels | {"span_name": name} for labels in LABELS for name in SPAN_NAMES]
Key = tuple[str, str]
"""Service and operation."""


class RenamedRequests(Requests):
    """`Requests`: each row of a request has a service of its own. A service `pay` has no samples."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._operation_of = {NO_TRACE: ""}
        self._samples: list[dict[str, Any]] = []
        self._label_of = {series_id(labels.items()): labels.get("span_name", "") for labels in _LABELS}
        insert_series(self.client, _LABELS, to_datetime(T0))
        self._flush("series")

    def request(self, at: float) -> Rows:
        rows = super().request(at)
        reported = rows.get("activity", []) + rows.get("spans", [])
        for each in reported:
            each["service"] = self.random.choice(_NAMES)
            self._operation_of[each["trace_id"]] = each["operation"] or self._operation_of[each["trace_id"]]
        for sample in rows["samples"]:
            labels = self.random.choice(_LABELS)
            sample |= {"service": labels["service"], "host_id": labels["host"], "series_id": series_id(labels.items())}
        self._samples += rows["samples"]
        return rows

    def sums(self, selection: Selection, *without: str, traced: bool = False) -> Counter[Key]:
        """The values of the selected samples by service and operation, without the matchers of some labels. `traced`:
        of those with a trace."""
        start, end = selection.time_range.start_unix_nano, selection.time_range.end_unix_nano
        matchers = [each for each in selection.matchers if each.label not in without]
        sums: Counter[Key] = Counter()
        for sample in self._samples:
            if traced and sample["trace_id"] == NO_TRACE:
                continue
            operation = self._operation_of[sample["trace_id"]] or self._label_of[sample["series_id"]]
            labels = {"service": sample["service"], "host": sample["host_id"], "operation": operation}
            if start <= round(sample["time"].timestamp() * 1000) * 10**6 < end and _matches(labels, matchers):
                sums[sample["service"], operation] += sample["value"]
        return sums


def _matches(labels: dict[str, str], matchers: Iterable[Matcher]) -> bool:
    equal: dict[str, Callable[[str, str], bool]] = {
        "=": lambda pattern, value: pattern == value,
        "=~": lambda pattern, value: re.fullmatch(pattern, value) is not None,
    }
    return all(
        equal[each.operator.replace("!", "=").replace("==", "=")](each.value, labels[each.label])
        != each.operator.startswith("!")
        for each in matchers
    )
