"""Ends a worker that makes no progress while its lag grows.

After a rebalance, Faust can stay "ready" without any partition.
"""

from collections.abc import Callable

from icestream.readiness import GroupWatch, Look
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW, STREAMS_GROUP
from streams import metrics


class Watchdog:
    """Watches the group's lag until `close`, and calls `bark` with the reason when the worker must end.

    `work` returns how many messages this worker has recovered: a takeover of many partitions may take longer than the
    limit. `excused` returns whether it waits for others, for instance for sinks with the in-process broker.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        limit_s: float,
        assigned: Callable[[], set[int]],
        work: Callable[[], int],
        excused: Callable[[], bool],
        bark: Callable[[BaseException], None],
    ) -> None:
        self._limit_s = limit_s
        self._assigned = assigned
        self._bark = bark
        self._barked = False
        self._watch = GroupWatch(
            settings, STREAMS_GROUP, (RAW, ACTIVITY), work=work, excused=excused, looked=self._looked
        )

    @property
    def problem(self) -> str | None:
        """Why the group cannot do its work; None when it can."""
        return self._watch.problem

    def close(self) -> None:
        self._watch.close()

    def _looked(self, look: Look, standstill_s: float) -> None:
        for (topic, partition), lag in look.lags.items():
            metrics.LAG.labels(topic, str(partition)).set(lag)
        if standstill_s > self._limit_s and not self._barked:
            self._barked = True
            assigned = sorted(self._assigned())
            mine = f"partitions {assigned}" if assigned else "no partition"
            reason = self._watch.standing_still(look, standstill_s)
            self._bark(RuntimeError(f"{reason}; this worker has {mine}. It ends now and should be started again"))
