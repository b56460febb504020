"""Scraped profiles that Kafka has not taken yet."""

import asyncio
import contextlib
import itertools
import logging
import time
from dataclasses import dataclass

from gateway import metrics
from gateway.encode import Encoded
from gateway.errors import Refused
from gateway.intake import Intake

_AGAIN_S = 1.0
"""A key that failed is tried again after this time. A key without an answer for this time counts as failed."""
_AT_ONCE = 16
_FAILED_AT_ONCE = 32
"""How many profiles of failed keys are published at once: each may take as long as Kafka has to acknowledge."""

_log = logging.getLogger(__name__)


@dataclass
class _Waiting:
    encoded: Encoded
    size: int  # bytes
    tries: int = 0
    since: float = 0.0  # seconds of the monotonic clock, when its last try began


class WaitingProfiles:
    """Publishes profiles of all targets, and keeps their messages until Kafka has them. If they are more than `limit`
    bytes, the oldest are dropped. For one event loop."""

    def __init__(self, intake: Intake, limit: int) -> None:
        self._intake = intake
        self._limit = limit
        self._profiles: dict[int, _Waiting] = {}  # the oldest first
        self._publishing: dict[int, asyncio.Task[None]] = {}
        self._failed: dict[bytes, float] = {}  # when each key failed that did so last; the longest ago first
        self._numbers = itertools.count()
        self._bytes = 0
        self._dropped = 0  # while Kafka is away
        self._away = ""  # why
        self._changed = asyncio.Event()
        self._none = asyncio.Event()
        self._none.set()

    def add(self, encoded: Encoded) -> None:
        size = sum(map(len, encoded.messages))
        if size > self._limit:
            _log.warning(
                "a scraped profile of %d bytes is dropped: ICESTREAM_GATEWAY_SCRAPE_WAITING_MB permits %d for all",
                size, self._limit,
            )  # fmt: skip
            metrics.SCRAPE_DROPPED.inc()
            return
        self._profiles[next(self._numbers)] = _Waiting(encoded, size)
        self._bytes += size
        self._changed.set()
        self._none.clear()
        while self._bytes > self._limit:
            # Those that are being published were within the limit, so there is always another one.
            self._drop(next(number for number in self._profiles if number not in self._publishing))
        metrics.SCRAPE_WAITING.set(self._bytes)

    async def run(self) -> None:
        """Publishes until it is cancelled."""
        try:
            while True:
                try:
                    await self._turn()
                except Exception:  # a fault of ours must not end it: nobody would publish
                    _log.exception("scraped profiles cannot be published")
                    await asyncio.sleep(_AGAIN_S)
        finally:
            for task in self._publishing.values():
                task.cancel()

    async def close(self, seconds: float) -> None:
        """Returns when all are published, or after some seconds; then the others are dropped."""
        try:
            await asyncio.wait_for(self._none.wait(), seconds)
        except TimeoutError:
            _log.warning("%d scraped profiles end with the gateway: Kafka did not take them", len(self._profiles))
            metrics.SCRAPE_DROPPED.inc(len(self._profiles))
            metrics.SCRAPE_WAITING.set(0)

    async def _turn(self) -> None:
        """Begins to publish what may be published now, and returns when something has changed."""
        self._changed.clear()
        for number in self._next():
            one = self._profiles[number]
            one.since = time.monotonic()
            self._publishing[number] = asyncio.create_task(self._publish(number, one))
        with contextlib.suppress(TimeoutError):
            # Not asyncio.wait_for: in Python 3.11 it loses a cancellation that comes together with the change.
            async with asyncio.timeout(_AGAIN_S if self._profiles else None):
                await self._changed.wait()

    def _next(self) -> list[int]:
        """Returns which profiles to publish now. The profiles of a key go to one partition, and a partition without a
        leader must not hold up others. So keys that failed have a bound of their own, and take turns with one profile
        each."""
        now = time.monotonic()
        publishing = [self._profiles[number] for number in self._publishing]
        for one in publishing:
            if now - one.since >= _AGAIN_S:
                self._failed.setdefault(one.encoded.key, now)
        tried = {one.encoded.key for one in publishing}
        of_failed = sum(one.encoded.key in self._failed for one in publishing)
        fresh: list[int] = []
        first: dict[bytes, int] = {}
        # Those that failed come last: Kafka may refuse one profile, and take others of its key.
        waiting = [item for item in self._profiles.items() if item[0] not in self._publishing]
        for number, one in sorted(waiting, key=lambda item: item[1].tries):
            if one.encoded.key in self._failed:
                first.setdefault(one.encoded.key, number)
            else:
                fresh.append(number)
        self._failed = {key: at for key, at in self._failed.items() if key in first or key in tried}
        due = (key for key, at in self._failed.items() if key in first and key not in tried and now - at >= _AGAIN_S)
        again = [first[key] for key in itertools.islice(due, max(0, _FAILED_AT_ONCE - of_failed))]
        return fresh[: max(0, _AT_ONCE - len(publishing) + of_failed)] + again

    async def _publish(self, number: int, one: _Waiting) -> None:
        key = one.encoded.key
        try:
            await self._intake.publish([one.encoded], "scrape")
        except Refused as error:
            one.tries += 1
            self._failed.pop(key, None)  # now it failed last of all
            self._failed[key] = time.monotonic()
            self._tell_away(error.message)
        except Exception:  # a fault of ours must not hold up the others
            _log.exception("a scraped profile cannot be published")
            self._drop(number)
        else:
            self._failed.pop(key, None)
            self._remove(number)
        finally:
            self._publishing.pop(number, None)
            self._changed.set()

    def _drop(self, number: int) -> None:
        if not self._dropped:
            _log.warning("scraped profiles are dropped, the oldest first: Kafka does not take them")
        self._dropped += 1
        metrics.SCRAPE_DROPPED.inc()
        self._remove(number)

    def _remove(self, number: int) -> None:
        one = self._profiles.pop(number, None)
        self._bytes -= one.size if one else 0
        metrics.SCRAPE_WAITING.set(self._bytes)
        if not self._profiles:
            self._none.set()
            self._tell_taken()

    def _tell_away(self, why: str) -> None:
        if not self._away:
            _log.warning("scraped profiles wait in memory, up to %d MB: %s", self._limit // 10**6, why)
            self._away = why

    def _tell_taken(self) -> None:
        if self._away or self._dropped:
            _log.info("Kafka has all scraped profiles that waited; %d were dropped", self._dropped)
        self._away, self._dropped = "", 0
