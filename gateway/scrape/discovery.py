"""Which targets a job has now."""

import asyncio
import glob
import logging
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gateway.labels import to_labels
from gateway.scrape.config import load_yaml, parse_groups
from gateway.scrape.job import ScrapeJob, TargetGroup, labels_of_group
from icestream.messages.checks import Labels
from icestream.relabel import apply_rules, lasting
from icestream.settings import SettingError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Target:
    """A program that serves profiles."""

    base: str  # SCHEME://HOST:PORT
    labels: Labels


class Discovery:
    """Finds the targets of one job. What a file or a name cannot say now is what it said before."""

    def __init__(self, job: ScrapeJob) -> None:
        self._job = job
        self._known: dict[str, tuple[TargetGroup, ...]] = {}
        self._failed: set[str] = set()

    async def targets(self) -> set[Target]:
        """Returns the targets after relabeling."""
        groups = list(self._job.groups)
        for name, port in self._job.dns:
            groups += await self._addresses(name, port)
        groups += await asyncio.to_thread(self._of_files)
        return set(_relabeled(self._job, groups))

    async def _addresses(self, name: str, port: int) -> tuple[TargetGroup, ...]:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # UnicodeError: no name may be so
            return self._as_before(name, str(error))
        hosts = sorted({str(address[0]) for *_, address in found})
        targets = tuple(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts)
        return self._found(name, (TargetGroup(targets, (("__meta_dns_name", name),)),))

    def _of_files(self) -> list[TargetGroup]:
        groups: list[TargetGroup] = []
        for pattern in self._job.files:
            files = sorted(glob.glob(pattern))
            if not files:
                self._as_before(pattern, "there is no such file, so it has no targets")
            for file in files:
                try:
                    groups += self._found(file, parse_groups(load_yaml(Path(file)), file))
                except SettingError as error:
                    groups += self._as_before(file, str(error))
        return groups

    def _found(self, source: str, groups: tuple[TargetGroup, ...]) -> tuple[TargetGroup, ...]:
        self._known[source] = groups
        self._failed.discard(source)
        return groups

    def _as_before(self, source: str, why: str) -> tuple[TargetGroup, ...]:
        if source not in self._failed:
            self._failed.add(source)
            _log.warning("scrape job %s: %s: %s", self._job.name, source, why)
        return self._known.get(source, ())


def _relabeled(job: ScrapeJob, groups: Iterable[TargetGroup]) -> Iterable[Target]:
    for group in groups:
        for address in group.targets:
            labels = labels_of_group(job, address, dict(group.labels))
            if not apply_rules(labels, job.rules):
                continue
            scheme, address = labels.get("__scheme__", job.http.scheme), labels.get("__address__", "")
            if not address or "/" in address or scheme not in ("http", "https"):
                continue
            own = {"service": job.name, "instance": address, **lasting(labels)}
            yield Target(f"{scheme}://{address}", to_labels(own.items()))
