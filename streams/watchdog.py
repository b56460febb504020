"""Ends a worker that makes no progress in one of its partitions while the lag grows.

After a rebalance, Faust can stay "ready" without any partition, or deliver nothing of one.
"""

from collections.abc import Callable, Mapping

from icestream.kafka.readiness import GroupOffsets, GroupWatch, Partition, Standstills
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW, STREAMS_GROUP
from streams import metrics


class Watchdog:
    """Watches the group's lag until `close`, and calls `bark` with the reason when the worker must end.

    `own` returns the worker's partitions, and what was done for each beside offsets, as `Standstills.update` has it: a
    takeover may take longer than the limit.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        limit_s: float,
        own: Callable[[], Mapping[Partition, int | None]],
        bark: Callable[[BaseException], None],
    ) -> None:
        self._limit_s = limit_s
        self._own = own
        self._bark = bark
        self._barked = False
        topics = (RAW, ACTIVITY)
        self._watch = GroupWatch(settings, STREAMS_GROUP, topics, own=own, on_offsets=self._check)

    @property
    def problem(self) -> str | None:
        """Why the group cannot do its work; None when it can."""
        return self._watch.problem

    def close(self) -> None:
        self._watch.close()

    def _check(self, offsets: GroupOffsets, standstills: Standstills) -> None:
        for (topic, partition), lag in offsets.lags.items():
            metrics.LAG.labels(topic, str(partition)).set(lag)
        reason = standstills.longer_than(self._limit_s)
        if reason is not None and not self._barked:
            self._barked = True
            assigned = sorted({number for _, number in self._own()})
            mine = f"partitions {assigned}" if assigned else "no partition"
            self._bark(RuntimeError(f"{reason}; this worker has {mine}. It ends now and should be started again"))
