"""Which targets a job has now."""

import asyncio
import glob
import itertools
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from gateway import metrics
from gateway.labels import to_labels
from gateway.readers.valid_texts import load_json
from gateway.scrape.http_client import HttpClient, ScrapeError
from gateway.scrape.job import (
    REFRESH_S,
    DnsName,
    KubernetesSource,
    ScrapeJob,
    TargetGroup,
    TargetsUrl,
    labels_of_group,
    parameters_of,
)
from gateway.scrape.kubernetes.targets import KubernetesTargets
from gateway.scrape.names import NotResolved, resolve
from gateway.scrape.target_groups import TargetList, parse_list
from icestream.files.yaml_file import load_yaml, shown
from icestream.labels.relabel import apply_rules, lasting
from icestream.messages.checks import Labels
from icestream.settings import SettingError

_ANSWER_S = 10.0
_LARGEST_LIST = 10_000_000
_LOGGED = 10
"""The most invalid targets that the log names at once."""

_CHANGES_S = 5.0
"""Changes in a Kubernetes cluster are taken together for this time: pods often come by the hundred."""

_Source = str | TargetsUrl | DnsName | KubernetesSource
"""A source of targets: a file, a server, a name or a Kubernetes cluster."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Target:
    """A program that serves profiles."""

    base: str  # SCHEME://HOST:PORT
    labels: Labels
    parameters: tuple[tuple[str, str], ...] = ()


class Discovery:
    """Finds the targets of one job. If a source cannot tell them now, its last ones count. What is invalid in a list is
    left out. Make it in an event loop."""

    def __init__(self, job: ScrapeJob) -> None:
        self._job = job
        self._client = HttpClient()
        self._known: dict[_Source, TargetList] = {}
        self._failed: set[_Source] = set()
        self._invalid: set[str] = set()
        self._lists: list[TargetList] = []
        """Those of all sources but Kubernetes clusters."""
        self._due = 0.0
        self._changed = asyncio.Event()
        self._kubernetes = {
            source: KubernetesTargets(source, self._client, self._changed.set) for source in job.kubernetes
        }

    async def close(self) -> None:
        for cluster in self._kubernetes.values():
            await cluster.close()
        await self._client.close()

    @property
    def refresh_s(self) -> float:
        """When to ask for the targets again: a source that failed is not left alone for a long refresh interval."""
        return min(self._job.refresh_s, REFRESH_S) if self._failed else self._job.refresh_s

    async def wait(self) -> bool:
        """Returns when to ask for the targets again; whether only those of Kubernetes clusters have changed."""
        await asyncio.sleep(min(_CHANGES_S, self.refresh_s))
        try:
            async with asyncio.timeout_at(self._due):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def targets(self, only_changed: bool = False) -> set[Target]:
        """Returns the targets after relabeling. `only_changed`: asks none but Kubernetes clusters."""
        self._changed.clear()
        if not only_changed:
            of_files, others = await asyncio.gather(
                asyncio.to_thread(self._of_files),
                asyncio.gather(*map(self._of_url, self._job.urls), *map(self._of_name, self._job.dns)),
            )
            self._lists = [*of_files, *others]
            self._due = asyncio.get_running_loop().time() + self.refresh_s
        of_clusters = [self._of_cluster(source) for source in self._kubernetes]
        return await asyncio.to_thread(self._targets, [*self._lists, *of_clusters])

    def _of_cluster(self, source: KubernetesSource) -> TargetList:
        cluster = self._kubernetes[source]
        self._known[source] = cluster.now()
        return self._as_before(source, cluster.error) if cluster.error else self._found(source, self._known[source])

    def _targets(self, lists: list[TargetList]) -> set[Target]:
        invalid = set(itertools.chain(*(one.invalid for one in lists)))
        groups = itertools.chain(self._job.groups, *(one.groups for one in lists))
        targets = set(_relabeled(self._job, groups, invalid))
        self._tell_invalid(invalid)
        return targets

    async def _of_url(self, source: TargetsUrl) -> TargetList:
        try:
            async with asyncio.timeout(_ANSWER_S):
                data = await self._list(source)
            listed = await asyncio.to_thread(_of_json, data, source.url)
        except TimeoutError:
            return self._as_before(source, f"no complete answer within {_ANSWER_S:.1f} s")
        except (ScrapeError, SettingError) as error:
            return self._as_before(source, str(error))
        return self._found(source, listed)

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

    async def _of_name(self, source: DnsName) -> TargetList:
        try:
            groups = await resolve(source, _ANSWER_S)
        except NotResolved as error:
            return self._as_before(source, str(error))
        return self._found(source, TargetList(groups))

    def _of_files(self) -> list[TargetList]:
        lists: list[TargetList] = []
        listed: set[_Source] = set(self._job.files)
        for pattern in self._job.files:
            files = sorted(glob.glob(pattern))
            listed.update(files)
            if not files:
                self._as_before(pattern, "there is no such file, so it has no targets")
            elif pattern not in files:
                self._found(pattern, TargetList(()))
            for file in files:
                try:
                    lists.append(self._found(file, parse_list(load_yaml(Path(file), "targets"), file)))
                except SettingError as error:
                    lists.append(self._as_before(file, str(error)))
        self._failed.difference_update(
            [each for each in list(self._failed) if isinstance(each, str) and each not in listed]
        )
        self._count()
        return lists

    def _found(self, source: _Source, listed: TargetList) -> TargetList:
        self._known[source] = listed
        if source in self._failed:
            self._failed.discard(source)
            _log.info("scrape job %s: %s is read again", self._job.name, source)
        self._count()
        return listed

    def _as_before(self, source: _Source, why: str) -> TargetList:
        if source not in self._failed:
            self._failed.add(source)
            _log.warning("scrape job %s: %s: %s", self._job.name, source, why)
        self._count()
        return self._known.get(source, TargetList(()))

    def _count(self) -> None:
        metrics.SCRAPE_DISCOVERY_FAILING.labels(self._job.name).set(len(self._failed))

    def _tell_invalid(self, invalid: set[str]) -> None:
        """Logs what was valid or unknown before."""
        new = sorted(invalid - self._invalid)
        for line in new[:_LOGGED]:
            _log.warning("scrape job %s: left out: %s", self._job.name, line)
        if len(new) > _LOGGED:
            _log.warning("scrape job %s: left out: %d more that are invalid", self._job.name, len(new) - _LOGGED)
        self._invalid = invalid
        metrics.SCRAPE_INVALID_TARGETS.labels(self._job.name).set(len(invalid))


def _of_json(data: bytes, url: str) -> TargetList:
    """Raises SettingError."""
    try:
        listed = parse_list(load_json(data), url)
    except SettingError:
        raise
    except (ValueError, RecursionError) as error:
        raise SettingError(f"expected a list of targets in JSON: {error}") from None
    groups = tuple(replace(group, labels=(("__meta_url", url), *group.labels)) for group in listed.groups)
    return replace(listed, groups=groups)


def _relabeled(job: ScrapeJob, groups: Iterable[TargetGroup], invalid: set[str]) -> Iterable[Target]:
    """Adds to `invalid` what has no address after relabeling."""
    for group in groups:
        for address in group.targets:
            labels = labels_of_group(job, address, dict(group.labels))
            if not apply_rules(labels, job.rules):
                continue
            scheme, address = labels.get("__scheme__", job.scheme), labels.get("__address__", "")
            base = f"{scheme}://{address}"
            if not address or "/" in address or scheme not in ("http", "https"):
                invalid.add(f"after relabeling: expected http(s)://HOST:PORT, got {shown(base)}")
                continue
            own = {"service": job.name, "instance": address, **dict(job.external_labels), **lasting(labels)}
            yield Target(base, to_labels(own.items()), parameters_of(job, labels))
