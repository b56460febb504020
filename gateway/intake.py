"""Takes profiles in: encodes them, publishes them, and counts them. Every protocol ends here."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from gateway import metrics
from gateway.encode import Encoded, encode
from gateway.encode_spans import encode_spans
from gateway.errors import Refused
from gateway.publisher import BatchPublisher
from gateway.readers.otlp_spans import read_spans
from gateway.reading_memory import ReadingMemory
from gateway.reading_threads import in_reading_thread
from gateway.sent_profile import SentProfile, SentProfiles
from gateway.series_limit import SeriesLimit
from gateway.settings import IntakeSettings
from icestream.labels.operations import OperationNames
from icestream.labels.request_labels import RequestLabels
from icestream.messages.plausible import TimeLimits, Times
from icestream.topics import ACTIVITY


class Intake:
    """Takes profiles of one gateway. For any thread: one knows all operations of its spans."""

    def __init__(self, settings: IntakeSettings, publisher: BatchPublisher) -> None:
        self.memory = ReadingMemory(settings.reading_bytes)
        self._limits = TimeLimits.from_settings(settings)
        self._publisher = publisher
        self._operations = OperationNames(settings.most_operations)
        self._sets = RequestLabels(settings.request_label_names())
        self._series = SeriesLimit(settings.gateway_service_series)
        metrics.MANY_OPERATIONS.read(lambda: self._operations.replaced)
        metrics.MANY_LABEL_SETS.read(lambda: self._sets.emptied)

    async def take_all(self, profiles: Sequence[SentProfile], format_name: str) -> Counter[str]:
        """Returns what of the profiles was dropped, once Kafka has all of them. Raises Refused, and then the sender may
        send all of them again: those that Kafka has are recognised."""
        dropped, _ = await self._take(profiles, format_name, partly=False)
        return dropped

    async def take_each(self, sent: SentProfiles, format_name: str) -> tuple[Counter[str], list[str]]:
        """Does what `take_all` does, but takes the profiles that can be taken. Returns also why the others were
        refused; why some could not be read comes first."""
        dropped, refused = await self._take(sent.profiles, format_name, partly=True)
        if sent.refused:
            metrics.DROPPED.labels("profiles").inc(len(sent.refused))
        return dropped, [*sent.refused, *refused]

    async def take_spans(self, data: TracesData, format_name: str) -> Counter[str]:
        """Returns how many spans could not be taken, by the reason, once Kafka has all others. Raises Refused, and then
        the sender may send all of them again."""
        times = self._limits.collected(time.time_ns() // 10**6)
        encoded, rejected = await in_reading_thread(_encode_spans, data, times, self._operations, self._sets)
        await asyncio.gather(*(self._publisher.publish(one.key, one.messages, ACTIVITY) for one in encoded))
        metrics.SPANS.labels(format_name).inc(sum(one.samples for one in encoded))
        if rejected:
            metrics.DROPPED.labels("spans").inc(rejected.total())
        return rejected

    async def encode(self, profiles: Sequence[SentProfile]) -> list[Encoded]:
        """Returns what `publish` takes, now or later. Raises Refused."""
        encoded, _ = await self._encode(profiles, partly=False)
        _count_dropped(profiles)
        return encoded

    async def publish(self, encoded: Sequence[Encoded], format_name: str) -> None:
        """Returns when Kafka has all of the profiles. Raises Refused, and then they may be published again: those that
        Kafka has are recognised."""
        await asyncio.gather(*(self._publisher.publish(one.key, one.messages) for one in encoded))
        metrics.PROFILES.labels(format_name).inc(len(encoded))
        metrics.SAMPLES.labels(format_name).inc(sum(one.samples for one in encoded))

    async def _take(
        self, profiles: Sequence[SentProfile], format_name: str, partly: bool
    ) -> tuple[Counter[str], list[str]]:
        encoded, refused = await self._encode(profiles, partly)
        await self.publish(encoded, format_name)
        dropped = _count_dropped(profiles)
        if refused:
            metrics.DROPPED.labels("profiles").inc(len(refused))
        return dropped, refused

    async def _encode(self, profiles: Sequence[SentProfile], partly: bool) -> tuple[list[Encoded], list[str]]:
        times = self._limits.collected(time.time_ns() // 10**6)
        return await in_reading_thread(_encode, profiles, times, partly, self._series)


def _count_dropped(profiles: Sequence[SentProfile]) -> Counter[str]:
    """Returns what of the profiles was dropped."""
    dropped: Counter[str] = sum((profile.dropped for profile in profiles), Counter())
    for what, count in dropped.items():
        metrics.DROPPED.labels(what).inc(count)
    return dropped


def _encode_spans(
    data: TracesData, times: Times, names: OperationNames, sets: RequestLabels
) -> tuple[list[Encoded], Counter[str]]:
    found = read_spans(data, times)
    return [encode_spans(group, times, names, sets) for group in found.groups], found.rejected


def _encode(
    profiles: Sequence[SentProfile], times: Times, partly: bool, limit: SeriesLimit
) -> tuple[list[Encoded], list[str]]:
    encoded, refused = [], []
    for profile in profiles:
        try:
            encoded.append(encode(profile, times, limit))
        except Refused as error:
            if not partly:
                raise
            refused.append(error.message)
    return encoded, refused
