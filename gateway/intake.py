"""Takes profiles in: encodes them, publishes them, and counts them. Every protocol ends here."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

from gateway import metrics
from gateway.encode import Encoded, encode
from gateway.publisher import Publisher
from gateway.sent_profile import SentProfile
from gateway.settings import GatewaySettings
from icestream.messages.plausible import TimeLimits, Times


class Intake:
    """Takes profiles of one gateway."""

    def __init__(self, settings: GatewaySettings, publisher: Publisher) -> None:
        self._limits = TimeLimits.of(settings)
        self._publisher = publisher

    async def take(self, profiles: Sequence[SentProfile], format_name: str) -> Counter[str]:
        """Returns when Kafka has all of the profiles: what of them was dropped. Raises Refused, and then the sender
        may send all of them again: those that Kafka has are recognised."""
        times = self._limits.collected(time.time_ns() // 10**6)
        encoded = await asyncio.to_thread(_encode, profiles, times)
        await asyncio.gather(*(self._publisher.publish(one.key, one.messages) for one in encoded))
        metrics.PROFILES.labels(format_name).inc(len(encoded))
        metrics.SAMPLES.labels(format_name).inc(sum(one.samples for one in encoded))
        dropped: Counter[str] = sum((profile.dropped for profile in profiles), Counter())
        for what, count in dropped.items():
            metrics.DROPPED.labels(what).inc(count)
        return dropped


def _encode(profiles: Sequence[SentProfile], times: Times) -> list[Encoded]:
    return [encode(profile, times) for profile in profiles]
