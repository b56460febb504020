"""/metrics, /healthz and /readyz of `icestream flatten`."""

import contextlib
from collections.abc import Callable

from icestream.http.metrics import HealthServer
from icestream.kafka.readiness import GroupOffsets, GroupWatch, Standstills
from icestream.topics import FLATTEN_GROUP, SAMPLES
from streams.flatten import metrics
from streams.settings import FlattenSettings


class FlattenHealth:
    """Answers until `close`. Raises OSError where it cannot listen."""

    def __init__(
        self, settings: FlattenSettings, interval_ms: int, problem: Callable[[], str | None],
        partitions: Callable[[], set[int]],
    ) -> None:  # fmt: skip
        """`problem` returns why this process cannot work yet; `partitions` those that it has."""
        self._own_problem = problem
        self._partitions = partitions
        self._watch = GroupWatch(
            settings, FLATTEN_GROUP, [SAMPLES], own=lambda: {(SAMPLES, number): 0 for number in partitions()},
            collects_s=interval_ms / 1000, on_offsets=self._note_lags,
        )  # fmt: skip
        try:
            self._server = HealthServer(settings.metrics_listen, self._problem, "flatten")
        except OSError:
            self._watch.close()
            raise

    def close(self) -> None:
        self._watch.close()
        self._server.close()

    def _problem(self) -> str | None:
        return self._own_problem() or self._watch.problem

    def _note_lags(self, offsets: GroupOffsets, _: Standstills) -> None:
        mine = self._partitions()
        for (topic, partition), lag in offsets.lags.items():
            if partition in mine:
                metrics.LAG.labels(topic, str(partition)).set(lag)
            else:
                with contextlib.suppress(KeyError):
                    metrics.LAG.remove(topic, str(partition))
