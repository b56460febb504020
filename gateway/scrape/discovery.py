"""Which targets a job has now."""

import asyncio
import glob
import itertools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gateway import metrics
from gateway.labels import to_labels
from gateway.readers.valid_texts import load_json
from gateway.scrape.config import parse_groups
from gateway.scrape.http_client import HttpClient, ScrapeError
from gateway.scrape.job import REFRESH_S, DnsName, ScrapeJob, TargetGroup, TargetsUrl, labels_of_group, parameters_of
from gateway.scrape.names import NotResolved, resolve
from icestream.messages.checks import Labels
from icestream.relabel import apply_rules, lasting
from icestream.settings import SettingError
from icestream.yaml_file import load_yaml

_ANSWER_S = 10.0
_LARGEST_LIST = 10_000_000

_Source = str | TargetsUrl | DnsName
"""Who says which targets there are: a file, a server or a name."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Target:
    """A program that serves profiles."""

    base: str  # SCHEME://HOST:PORT
    labels: Labels
    parameters: tuple[tuple[str, str], ...] = ()


class Discovery:
    """Finds the targets of one job. If a file, a server or a name cannot tell them now, its last ones count."""

    def __init__(self, job: ScrapeJob) -> None:
        self._job = job
        self._client = HttpClient()
        self._known: dict[_Source, tuple[TargetGroup, ...]] = {}
        self._failed: set[_Source] = set()

    async def close(self) -> None:
        await self._client.close()

    @property
    def refresh_s(self) -> float:
        """When to ask for the targets again: a source that failed is not left alone for a long refresh interval."""
        return min(self._job.refresh_s, REFRESH_S) if self._failed else self._job.refresh_s

    async def targets(self) -> set[Target]:
        """Returns the targets after relabeling."""
        found = await asyncio.gather(
            asyncio.to_thread(self._of_files), *map(self._of_url, self._job.urls), *map(self._of_name, self._job.dns)
        )
        groups = itertools.chain(self._job.groups, *found)
        return await asyncio.to_thread(lambda: set(_relabeled(self._job, groups)))

    async def _of_url(self, source: TargetsUrl) -> Sequence[TargetGroup]:
        try:
            async with asyncio.timeout(_ANSWER_S):
                data = await self._list(source)
            groups = await asyncio.to_thread(_of_json, data, source.url)
        except TimeoutError:
            return self._as_before(source, f"no complete answer within {_ANSWER_S:.1f} s")
        except (ScrapeError, SettingError) as error:
            return self._as_before(source, str(error))
        return self._found(source, groups)

    async def _list(self, source: TargetsUrl) -> bytes:
        headers = {
            "Accept": "application/json",
            "X-Prometheus-Refresh-Interval-Seconds": f"{self._job.refresh_s:.0f}",
        }
        async with self._client.get(source.url, source.http, (), headers) as answer:
            body = bytearray()
            async for piece in answer.content.iter_any():
                body += piece
                if len(body) > _LARGEST_LIST:
                    raise ScrapeError("too_large", f"its list has more than {_LARGEST_LIST} bytes")
            return bytes(body)

    async def _of_name(self, source: DnsName) -> Sequence[TargetGroup]:
        try:
            groups = await resolve(source, _ANSWER_S)
        except NotResolved as error:
            return self._as_before(source, str(error))
        return self._found(source, groups)

    def _of_files(self) -> list[TargetGroup]:
        groups: list[TargetGroup] = []
        listed: set[_Source] = set(self._job.files)
        for pattern in self._job.files:
            files = sorted(glob.glob(pattern))
            listed.update(files)
            if not files:
                self._as_before(pattern, "there is no such file, so it has no targets")
            elif pattern not in files:
                self._found(pattern, ())
            for file in files:
                try:
                    groups += self._found(file, parse_groups(load_yaml(Path(file), "targets"), file))
                except SettingError as error:
                    groups += self._as_before(file, str(error))
        self._failed.difference_update(
            [each for each in list(self._failed) if isinstance(each, str) and each not in listed]
        )
        self._count()
        return groups

    def _found(self, source: _Source, groups: tuple[TargetGroup, ...]) -> tuple[TargetGroup, ...]:
        self._known[source] = groups
        if source in self._failed:
            self._failed.discard(source)
            _log.info("scrape job %s: %s is read again", self._job.name, source)
        self._count()
        return groups

    def _as_before(self, source: _Source, why: str) -> tuple[TargetGroup, ...]:
        if source not in self._failed:
            self._failed.add(source)
            _log.warning("scrape job %s: %s: %s", self._job.name, source, why)
        self._count()
        return self._known.get(source, ())

    def _count(self) -> None:
        metrics.SCRAPE_DISCOVERY_FAILING.labels(self._job.name).set(len(self._failed))


def _of_json(data: bytes, url: str) -> tuple[TargetGroup, ...]:
    """Raises SettingError."""
    try:
        groups = parse_groups(load_json(data), url)
    except SettingError:
        raise
    except (ValueError, RecursionError) as error:
        raise SettingError(f"expected a list of targets in JSON: {error}") from None
    return tuple(replace(group, labels=(("__meta_url", url), *group.labels)) for group in groups)


def _relabeled(job: ScrapeJob, groups: Iterable[TargetGroup]) -> Iterable[Target]:
    for group in groups:
        for address in group.targets:
            labels = labels_of_group(job, address, dict(group.labels))
            if not apply_rules(labels, job.rules):
                continue
            scheme, address = labels.get("__scheme__", job.scheme), labels.get("__address__", "")
            if not address or "/" in address or scheme not in ("http", "https"):
                continue
            own = {"service": job.name, "instance": address, **dict(job.external_labels), **lasting(labels)}
            yield Target(f"{scheme}://{address}", to_labels(own.items()), parameters_of(job, labels))
