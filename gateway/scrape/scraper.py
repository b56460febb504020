"""Scrapes the targets of all jobs, on a thread and an event loop of its own."""

import asyncio
import contextlib
import heapq
import logging
import threading
from collections.abc import Coroutine
from operator import attrgetter
from typing import Any

from gateway import metrics
from gateway.intake import Intake
from gateway.scrape.discovery import Discovery, Target
from gateway.scrape.fetch import Fetcher
from gateway.scrape.job import ScrapeJob
from gateway.scrape.target_loop import TargetLoop
from gateway.scrape.waiting_profiles import WaitingProfiles
from gateway.settings import IntakeSettings

Loops = dict[Target, list[asyncio.Task[None]]]
_IN_ORDER = attrgetter("base", "labels", "parameters")

_log = logging.getLogger(__name__)


class Scraper:
    """Scrapes from its construction on, until `close`."""

    def __init__(self, settings: IntakeSettings, intake: Intake, jobs: tuple[ScrapeJob, ...]) -> None:
        self._settings = settings
        self._intake = intake
        self._jobs = jobs
        self._scraped = 0
        self._logged: dict[str, tuple[int, int]] = {}
        self._stop = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="scrape", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Asks no more targets, and returns when the profiles that are being published are published."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._scrape())

    async def _scrape(self) -> None:
        reading = asyncio.Semaphore(self._settings.gateway_scrape_at_once)
        waiting = WaitingProfiles(self._intake, self._settings.scrape_waiting_bytes)
        publishing = asyncio.create_task(waiting.run())
        work = [asyncio.create_task(self._job(job, reading, waiting)) for job in self._jobs]
        await self._stop.wait()
        await _end(work)
        await waiting.close(self._settings.gateway_ack_s)
        await _end([publishing])

    async def _job(self, job: ScrapeJob, reading: asyncio.Semaphore, waiting: WaitingProfiles) -> None:
        """Follows the targets of a job, until it is cancelled."""
        discovery = Discovery(job)
        fetcher = Fetcher(job, self._settings, reading)
        loops: Loops = {}
        only_changed = False
        try:
            while True:
                try:
                    await self._follow(job, await discovery.targets(only_changed), loops, fetcher, waiting)
                except Exception:  # a fault of ours, found by what a file or a name server says, must not end the job
                    _log.exception("scrape job %s: its targets stay as they are", job.name)
                only_changed = await discovery.wait()
        finally:
            await _end([task for tasks in loops.values() for task in tasks])
            await fetcher.close()
            await discovery.close()

    async def _follow(
        self, job: ScrapeJob, wanted: set[Target], loops: Loops, fetcher: Fetcher, waiting: WaitingProfiles
    ) -> None:
        """Begins with new targets, and ends with those that are gone."""
        for target in loops.keys() - wanted:
            await _end(loops.pop(target))
            self._scraped -= 1
        room = max(0, self._settings.gateway_scrape_targets - self._scraped)
        new = wanted - loops.keys()
        # In a thread: a list may be long.
        for target in await asyncio.to_thread(heapq.nsmallest, room, new, _IN_ORDER):
            loops[target] = [asyncio.create_task(run) for run in self._runs(job, target, fetcher, waiting)]
            self._scraped += 1
        self._tell(job, len(loops), len(wanted) - len(loops))

    def _runs(
        self, job: ScrapeJob, target: Target, fetcher: Fetcher, waiting: WaitingProfiles
    ) -> list[Coroutine[Any, Any, None]]:
        return [
            TargetLoop(job, target, profile, fetcher, self._intake, waiting, self._settings).run()
            for profile in job.profiles
        ]

    def _tell(self, job: ScrapeJob, scraped: int, left_out: int) -> None:
        metrics.SCRAPE_TARGETS.labels(job.name).set(scraped)
        metrics.SCRAPE_LEFT_OUT.labels(job.name).set(left_out)
        if self._logged.get(job.name) != (scraped, left_out):
            _log.info("scrape job %s: %d targets", job.name, scraped)
            if left_out:
                _log.warning("scrape job %s: %d more are too many for gateway_scrape_targets", job.name, left_out)
        self._logged[job.name] = scraped, left_out


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
