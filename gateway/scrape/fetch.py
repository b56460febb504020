"""Asks a target for a profile, with limits of bytes and time."""

import asyncio
import sys
from collections.abc import Sequence

import aiohttp

from gateway import metrics
from gateway.scrape.discovery import Target
from gateway.scrape.http_client import HttpClient, ScrapeError
from gateway.scrape.job import SECONDS, ProfilePath, ScrapeJob
from gateway.settings import IntakeSettings

_SMALL = 1 << 16
"""This many bytes of an answer are read before it counts among the answers that are read at once: the connection holds
as many anyway. So targets that send a little at a time do not keep others waiting."""


class Fetcher:
    """Asks the targets of one job, until `close`. Call it in an event loop."""

    def __init__(self, job: ScrapeJob, settings: IntakeSettings, reading: asyncio.Semaphore) -> None:
        """`reading` limits how many answers are read at once, in all jobs."""
        self._job = job
        self._limit = min(settings.body_bytes, job.body_size_limit or sys.maxsize)
        self._reading = reading
        self._client = HttpClient()

    async def close(self) -> None:
        await self._client.close()

    async def fetch(self, target: Target, profile: ProfilePath) -> bytes:
        """Returns the profile as the target sent it. Raises ScrapeError."""
        seconds = self._job.seconds if profile.delta else 0
        started = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(seconds + self._job.timeout_s):
                own = [(SECONDS, str(seconds))] if seconds else []
                return await self._ask(target, profile, [*target.parameters, *own])
        except TimeoutError:
            took = asyncio.get_running_loop().time() - started
            raise ScrapeError("timeout", f"no complete answer within {took:.1f} s") from None
        finally:
            took = asyncio.get_running_loop().time() - started
            metrics.SCRAPE_SECONDS.labels(self._job.name).observe(max(0.0, took - seconds))

    async def _ask(self, target: Target, profile: ProfilePath, parameters: Sequence[tuple[str, str]]) -> bytes:
        url = f"{target.base}{self._job.path_prefix}{profile.path}"
        async with self._client.get(url, self._job.http, parameters) as answer:
            self._check_size(answer.content_length or 0)
            body = bytearray()
            if not await self._read(answer, body, _SMALL):
                async with self._reading, asyncio.timeout(self._job.timeout_s):
                    await self._read(answer, body, self._limit + 1)
            return bytes(body)

    async def _read(self, answer: aiohttp.ClientResponse, body: bytearray, size: int) -> bool:
        """Adds to the body until it has this many bytes; returns whether it is complete before that."""
        while len(body) < size:
            piece = await answer.content.readany()
            if not piece:
                return True
            body += piece
            metrics.SCRAPE_BYTES.labels(self._job.name).inc(len(piece))
            self._check_size(len(body))
        return False

    def _check_size(self, size: int) -> None:
        if size > self._limit:
            raise ScrapeError("too_large", f"its profile has more than {self._limit} bytes")
