"""Scrapes one profile of one target, again and again."""

import asyncio
import dataclasses
import logging
import sys
import time
from collections.abc import Sequence

import xxhash

from gateway import metrics
from gateway.errors import Refused
from gateway.intake import Intake
from gateway.readers.pprof import Source, read_pprof
from gateway.reading_memory import Reading
from gateway.reading_threads import in_reading_thread
from gateway.scrape.cumulative import Restarted, Totals, split, totals
from gateway.scrape.discovery import Target
from gateway.scrape.fetch import Fetcher
from gateway.scrape.http_client import ScrapeError
from gateway.scrape.job import ProfilePath, ScrapeJob
from gateway.scrape.waiting_profiles import WaitingProfiles
from gateway.sent_profile import SentProfile
from gateway.settings import IntakeSettings
from gateway.unpack import unpack

_NAMED_BY_TYPE = ("process_cpu", "memory", "goroutine")
"""Profiles whose sample types say what they are, as `gateway.profile_types` knows; others have their own name."""

_log = logging.getLogger(__name__)


class TargetLoop:
    """Scrapes until it is cancelled."""

    def __init__(
        self, job: ScrapeJob, target: Target, profile: ProfilePath, fetcher: Fetcher, intake: Intake,
        waiting: WaitingProfiles, settings: IntakeSettings,
    ) -> None:  # fmt: skip
        self._job = job
        self._target = target
        self._profile = profile
        self._fetcher = fetcher
        self._intake = intake
        self._waiting = waiting
        self._settings = settings
        self._before: Totals | None = None
        self._failing = False

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self._offset_s()
        try:
            while True:
                await asyncio.sleep(due - loop.time())
                await self._scrape()
                due = max(due + self._job.interval_s, loop.time())
        finally:
            self._set_failing(False)

    def _offset_s(self) -> float:
        """Returns when the first scrape is: targets are spread over the interval, each always at the same place."""
        name = f"{self._job.name} {self._target} {self._profile.path}"
        return float(xxhash.xxh32_intdigest(name.encode()) / 2**32 * self._job.interval_s)

    async def _scrape(self) -> None:
        start = time.time_ns()
        result = "ok"
        try:
            data = await self._fetcher.fetch(self._target, self._profile)
            with self._intake.memory.request() as reading:
                profiles = await in_reading_thread(self._read, data, start, time.time_ns(), reading)
                for encoded in await self._intake.encode(profiles):
                    self._waiting.add(encoded)
            self._went("")
        except ScrapeError as error:
            result = error.result
            self._went(str(error))
        except Refused as error:
            result = "refused"
            self._went(error.message)
        except Exception as error:
            # A fault of ours, found by what a target sends, must not end the scraping of that target.
            result = "error"
            _log.exception("scrape job %s: %s", self._job.name, self._address())
            self._went(str(error) or type(error).__name__)
        metrics.SCRAPES.labels(self._job.name, result).inc()

    def _read(self, data: bytes, start: int, end: int, reading: Reading) -> Sequence[SentProfile]:
        """Returns what is to be published. Raises Refused and ScrapeError."""
        name = "" if self._profile.name in _NAMED_BY_TYPE else self._profile.name
        # By our clock: a target's may be wrong.
        source = Source(self._target.labels, name, start, end)
        limit = min(self._settings.unpacked_bytes, self._job.body_size_limit or sys.maxsize)
        unpacked = reading.before_reading(unpack(data, limit))
        profile = _kept(read_pprof(unpacked, source, self._settings.gateway_max_series), self._profile)
        if self._profile.delta:
            return [profile]
        now = totals(profile)
        try:
            found = list(split(profile, self._before, now))
        except Restarted:
            metrics.SCRAPE_RESTARTS.labels(self._job.name).inc()
            _log.info("scrape job %s: %s restarted, and counts from now on", self._job.name, self._address())
            found = list(split(profile, None, now))
        self._before = now
        return found

    def _went(self, failure: str) -> None:
        """Logs the first failure, and the end of failures."""
        if failure and not self._failing:
            _log.warning("scrape job %s: %s: %s", self._job.name, self._address(), failure)
        elif self._failing and not failure:
            _log.info("scrape job %s: %s is scraped again", self._job.name, self._address())
        self._set_failing(bool(failure))

    def _set_failing(self, failing: bool) -> None:
        if failing != self._failing:
            metrics.SCRAPE_FAILING.labels(self._job.name).inc(1 if failing else -1)
        self._failing = failing

    def _address(self) -> str:
        return f"{self._target.base}{self._job.path_prefix}{self._profile.path}"


def _kept(profile: SentProfile, path: ProfilePath) -> SentProfile:
    """Returns the profile with the values of the sample types that the job keeps. Raises ScrapeError if it has none."""
    if not path.kept_types:
        return profile
    types = [tuple(one.profile_type.split(":")[1:3]) for one in profile.values]
    values = [one for one, kind in zip(profile.values, types, strict=True) if kind in path.kept_types]
    if not values:
        had = ", ".join("/".join(kind) for kind in types)
        raise ScrapeError("sample_type", f"keep_sample_type keeps nothing of {path.name}, which has {had:.300}")
    return dataclasses.replace(profile, values=values)
