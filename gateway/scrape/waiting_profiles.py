"""Scraped profiles that Kafka has not taken yet."""

import asyncio
import heapq
import itertools
import logging
from dataclasses import dataclass

from gateway import metrics
from gateway.encode import Encoded
from gateway.errors import Refused
from gateway.intake import Intake

_AGAIN_S = 1.0
_AT_ONCE = 16

_log = logging.getLogger(__name__)


@dataclass
class _Waiting:
    encoded: Encoded
    size: int  # bytes
    tries: int = 0
    publishing: bool = False


class WaitingProfiles:
    """Publishes profiles of all targets, and keeps their messages until Kafka has them. If they are more than `limit`
    bytes, the oldest are dropped. For one event loop."""

    def __init__(self, intake: Intake, limit: int) -> None:
        self._intake = intake
        self._limit = limit
        self._profiles: dict[int, _Waiting] = {}  # the oldest first
        self._numbers = itertools.count()
        self._bytes = 0
        self._dropped = 0  # while Kafka is away
        self._away = ""  # why
        self._some = asyncio.Event()
        self._none = asyncio.Event()
        self._none.set()

    def add(self, encoded: Encoded) -> None:
        size = sum(map(len, encoded.messages))
        self._profiles[next(self._numbers)] = _Waiting(encoded, size)
        self._bytes += size
        self._some.set()
        self._none.clear()
        while self._bytes > self._limit:
            # Those that are being published were within the limit, so there is always another one.
            self._drop(next(number for number, one in self._profiles.items() if not one.publishing))
        metrics.SCRAPE_WAITING.set(self._bytes)

    async def run(self) -> None:
        """Publishes until it is cancelled."""
        while True:
            await self._some.wait()
            # Those that failed come last: a partition without a leader must not hold up the others.
            batch = heapq.nsmallest(_AT_ONCE, self._profiles.items(), key=lambda item: item[1].tries)
            errors = await asyncio.gather(*(self._publish(number, one) for number, one in batch))
            self._tell(errors)
            if all(errors):
                await asyncio.sleep(_AGAIN_S)

    async def close(self, seconds: float) -> None:
        """Returns when all are published, or after some seconds; then the others are dropped."""
        try:
            await asyncio.wait_for(self._none.wait(), seconds)
        except TimeoutError:
            _log.warning("%d scraped profiles end with the gateway: Kafka did not take them", len(self._profiles))
            metrics.SCRAPE_DROPPED.inc(len(self._profiles))
            metrics.SCRAPE_WAITING.set(0)

    async def _publish(self, number: int, one: _Waiting) -> str:
        """Returns why Kafka does not take it now, or ""."""
        one.publishing = True
        try:
            await self._intake.publish([one.encoded], "scrape")
        except Refused as error:
            one.tries += 1
            return error.message
        except Exception:  # a fault of ours must not hold up the others
            _log.exception("a scraped profile cannot be published")
            self._drop(number)
            return ""
        finally:
            one.publishing = False
        self._remove(number)
        return ""

    def _drop(self, number: int) -> None:
        if not self._dropped:
            _log.warning("scraped profiles are dropped, the oldest first: Kafka does not take them")
        self._dropped += 1
        metrics.SCRAPE_DROPPED.inc()
        self._remove(number)

    def _remove(self, number: int) -> None:
        self._bytes -= self._profiles.pop(number).size
        metrics.SCRAPE_WAITING.set(self._bytes)
        if not self._profiles:
            self._some.clear()
            self._none.set()

    def _tell(self, errors: list[str]) -> None:
        """Logs when Kafka begins to take nothing, and when it has taken all again."""
        away = next(filter(None, errors), "")
        if away and not self._away:
            _log.warning("scraped profiles wait in memory, up to %d MB: %s", self._limit // 10**6, away)
            self._away = away
        elif self._away and not self._profiles:
            _log.info("Kafka has all scraped profiles that waited; %d were dropped", self._dropped)
            self._away, self._dropped = "", 0
