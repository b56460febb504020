"""The file of scrape jobs: YAML in the shape of Prometheus's scrape_configs, with the profiles as Parca writes them."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.profile_types import COUNT, ValueType
from gateway.scrape.fields import ConfigFields
from gateway.scrape.http_fields import take_http
from gateway.scrape.job import (
    GO_PROFILES,
    REFRESH_S,
    SECONDS,
    SRV,
    DnsName,
    ProfilePath,
    ScrapeJob,
    TargetsUrl,
)
from gateway.scrape.known_fields import GLOBAL_ABOUT_METRICS, NOT_ABOUT_SCRAPING
from gateway.scrape.kubernetes.config import take_kubernetes
from gateway.scrape.target_groups import take_group, take_labels
from icestream.files.yaml_file import load_yaml, shown
from icestream.labels.relabel_config import parse_rules
from icestream.settings import SettingError

_URL = re.compile(r"https?://[^\s/@?#]+(?:[/?][^\s#]*)?")

_SOURCES = ("file_sd_configs", "http_sd_configs", "dns_sd_configs")
_KUBERNETES = "kubernetes_sd_configs"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Global:
    """What holds for jobs that do not say otherwise."""

    interval_s: float
    timeout_s: float
    body_size_limit: int
    labels: tuple[tuple[str, str], ...]


def load_jobs(path: Path) -> tuple[ScrapeJob, ...]:
    """Returns the jobs of a file. Raises SettingError, which names the file and the job."""
    loaded = ConfigFields(load_yaml(path, "scrape jobs"), str(path))
    defaults, left_out = _global(loaded.group("global"))
    jobs = tuple(_job(one, defaults) for one in loaded.groups("scrape_configs"))
    left_out += [name for name in NOT_ABOUT_SCRAPING if loaded.pop(name) is not None]
    if left_out:
        _log.info("%s: left out, as it is not about scraping profiles: %s", path, ", ".join(left_out))
    loaded.end()
    names = [job.name for job in jobs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise SettingError(f"{path}: there are several jobs with the job_name {twice[0]!r}")
    return jobs


def _global(fields: ConfigFields) -> tuple[_Global, list[str]]:
    """Returns the defaults of jobs, and which fields are left out."""
    interval_s = fields.seconds("scrape_interval", 15.0)
    found = _Global(
        interval_s=interval_s,
        timeout_s=fields.seconds("scrape_timeout", min(10.0, interval_s)),
        body_size_limit=fields.size("body_size_limit", 0),
        labels=take_labels(fields.group("external_labels")),
    )
    left_out = [f"global: {name}" for name in GLOBAL_ABOUT_METRICS if fields.pop(name) is not None]
    fields.end()
    return found, left_out


def _job(fields: ConfigFields, defaults: _Global) -> ScrapeJob:
    name = fields.text("job_name")
    if not name:
        raise SettingError(f"{fields.where}: expected a job_name")
    fields.where = f"{fields.where} ({name})"
    interval_s = fields.seconds("scrape_interval", defaults.interval_s)
    sources = {kind: fields.groups(kind) for kind in _SOURCES}
    profiling = fields.group("profiling_config")
    job = ScrapeJob(
        name=name,
        interval_s=interval_s,
        timeout_s=fields.seconds("scrape_timeout", min(defaults.timeout_s, interval_s)),
        refresh_s=min(
            [one.seconds("refresh_interval", REFRESH_S) for kind in _SOURCES for one in sources[kind]] or [REFRESH_S]
        ),
        groups=tuple(take_group(one) for one in fields.groups("static_configs")),
        files=tuple(file for one in sources["file_sd_configs"] for file in _files(one)),
        urls=tuple(_url(one) for one in sources["http_sd_configs"]),
        dns=tuple(name for one in sources["dns_sd_configs"] for name in _dns(one)),
        kubernetes=tuple(take_kubernetes(one) for one in fields.groups(_KUBERNETES)),
        profiles=_profiles(profiling.group("pprof_config")),
        rules=parse_rules(fields.pop("relabel_configs"), f"{fields.where}: relabel_configs"),
        scheme=fields.text("scheme", "http"),
        path_prefix=profiling.text("path_prefix"),
        http=take_http(fields),
        parameters=_parameters(fields.group("params")),
        body_size_limit=fields.size("body_size_limit", defaults.body_size_limit),
        external_labels=defaults.labels,
    )
    profiling.end()
    fields.end()
    if job.scheme not in ("http", "https"):
        raise SettingError(f"{fields.where}: scheme: expected http or https, got {shown(job.scheme)}")
    return job


def _profiles(given: ConfigFields) -> Sequence[ProfilePath]:
    """Returns Go's profiles, changed as the fields say, and the profiles with other names."""
    profiles = []
    known = {profile.name: profile for profile in GO_PROFILES}
    for name in [*known, *(name for name in given.names() if name not in known)]:
        one = given.group(name)
        path = one.text("path", known[name].path if name in known else "")
        kept = _kept_types(one.groups("keep_sample_type"), one.where)
        delta = one.flag("delta", name in known and known[name].delta)
        if not path.startswith("/"):
            raise SettingError(f"{one.where}: path: expected /PATH, got {shown(path)}")
        if one.flag("enabled", True):
            profiles.append(ProfilePath(name, path, delta, kept))
        one.end()
    given.end()
    return tuple(profiles)


def _kept_types(given: Sequence[ConfigFields], where: str) -> tuple[ValueType, ...]:
    kept = tuple(ValueType(one.text("type"), one.text("unit")) for one in given)
    for one in given:
        one.end()
    if kept and set(kept) == {COUNT}:
        raise SettingError(f"{where}: keep_sample_type: expected more than samples/count, which others are counted by")
    return kept


def _parameters(given: ConfigFields) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if given.has(SECONDS):
        raise SettingError(f"{given.where}: expected no seconds: scrape_interval is how long profiles with delta are")
    return tuple((name, tuple(given.texts(name, numbers=True))) for name in given.names())


def _files(fields: ConfigFields) -> list[str]:
    files = fields.texts("files")
    fields.end()
    return files


def _url(fields: ConfigFields) -> TargetsUrl:
    url = fields.text("url")
    if not _URL.fullmatch(url):
        raise SettingError(f"{fields.where}: url: expected http(s)://HOST/PATH without a password, got {shown(url)}")
    found = TargetsUrl(url, take_http(fields))
    fields.end()
    return found


def _dns(fields: ConfigFields) -> list[DnsName]:
    names, port, kind = fields.texts("names"), fields.pop("port"), fields.text("type")
    fields.end()
    if kind == SRV or (not kind and port is None):  # Prometheus's default
        return [DnsName(name, SRV) for name in names]
    if kind not in ("", "A", "AAAA"):
        raise SettingError(f"{fields.where}: type: expected SRV, A or AAAA, got {shown(kind)}")
    if not isinstance(port, int) or not 0 < port < 2**16:
        raise SettingError(f"{fields.where}: port: expected a port of the addresses, got {shown(port)}")
    return [DnsName(name, kind, port) for name in names]
