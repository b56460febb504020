"""The file of scrape jobs: YAML in the shape of Prometheus's scrape_configs, with the profiles as Parca writes them."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gateway.scrape.fields import Fields, shown
from gateway.scrape.job import GO_PROFILES, SRV, DnsName, Http, ProfilePath, ScrapeJob, TargetGroup, TargetsUrl
from icestream.relabel import is_name
from icestream.relabel_config import parse_rules
from icestream.settings import SettingError

MAX_FILE = 1 << 20
MAX_TARGETS = 100_000
"""Of one list."""
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?")
_UNITS_S = (3600.0, 60.0, 1.0, 0.001)
_URL = re.compile(r"https?://[^\s/@?#]+(?:[/?][^\s#]*)?")
_ADDRESS = re.compile(r"(?:[^\s/@?#:\[\]]+|\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\])(?::\d{1,5})?")


def load_jobs(path: Path) -> tuple[ScrapeJob, ...]:
    """Returns the jobs of a file. Raises SettingError, which names the file and the job."""
    loaded = Fields(load_yaml(path), str(path))
    jobs = tuple(_job(one) for one in loaded.groups("scrape_configs"))
    loaded.end()
    names = [job.name for job in jobs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise SettingError(f"{path}: there are several jobs with the job_name {twice[0]!r}")
    return jobs


def load_yaml(path: Path) -> Any:
    """Returns what a file of YAML (or JSON) has. Raises SettingError."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        if path.stat().st_size > MAX_FILE:
            raise SettingError(f"{path}: larger than {MAX_FILE} bytes")
        return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YAMLError, RecursionError, ValueError) as error:
        raise SettingError(f"scrape jobs cannot be read from {path}: {error}") from None


def parse_groups(loaded: Any, where: str) -> tuple[TargetGroup, ...]:
    """Makes a list of targets with labels into groups. Raises SettingError, whose message begins with `where`."""
    groups = tuple(_group(one) for one in Fields({"groups": loaded}, where).groups("groups"))
    if (targets := sum(len(group.targets) for group in groups)) > MAX_TARGETS:
        raise SettingError(f"{where}: expected at most {MAX_TARGETS} targets, got {targets}")
    return groups


def _job(fields: Fields) -> ScrapeJob:
    name = fields.text("job_name")
    if not name:
        raise SettingError(f"{fields.where}: expected a job_name")
    fields.where = f"{fields.where} ({name})"
    interval_s = _seconds(fields, "scrape_interval", 15.0)
    profiling = fields.group("profiling_config")
    job = ScrapeJob(
        name=name,
        interval_s=interval_s,
        timeout_s=_seconds(fields, "scrape_timeout", min(10.0, interval_s)),
        groups=tuple(_group(one) for one in fields.groups("static_configs")),
        files=tuple(file for one in fields.groups("file_sd_configs") for file in _files(one)),
        urls=tuple(_url(one) for one in fields.groups("http_sd_configs")),
        dns=tuple(name for one in fields.groups("dns_sd_configs") for name in _dns(one)),
        profiles=_profiles(profiling.group("pprof_config")),
        rules=parse_rules(fields.take("relabel_configs"), f"{fields.where}: relabel_configs"),
        scheme=fields.text("scheme", "http"),
        path_prefix=profiling.text("path_prefix"),
        http=_http(fields),
    )
    profiling.end()
    fields.end()
    if job.scheme not in ("http", "https"):
        raise SettingError(f"{fields.where}: scheme: expected http or https, got {shown(job.scheme)}")
    return job


def _http(fields: Fields) -> Http:
    """Takes the fields that say how a server is asked."""
    basic, bearer, tls = (fields.group(name) for name in ("basic_auth", "authorization", "tls_config"))
    token = fields.text("bearer_token"), fields.text("bearer_token_file")  # older than `authorization`
    given = bearer.text("credentials"), bearer.text("credentials_file")
    http = Http(
        follow_redirects=fields.flag("follow_redirects", True),
        authorization=(bearer.text("type", "Bearer"), given[0] or token[0]),
        credentials_file=given[1] or token[1],
        basic=(basic.text("username"), basic.text("password")),
        password_file=basic.text("password_file"),
        ca_file=tls.text("ca_file"),
        cert_file=tls.text("cert_file"),
        key_file=tls.text("key_file"),
        verify=not tls.flag("insecure_skip_verify", False),
        server_name=tls.text("server_name"),
    )
    if sum(map(bool, (*given, *token, http.basic[0]))) > 1:
        raise SettingError(f"{fields.where}: expected one of basic_auth, authorization and bearer_token, got several")
    if http.key_file and not http.cert_file:
        raise SettingError(f"{fields.where}: tls_config: expected a cert_file, as there is a key_file")
    for group in (basic, bearer, tls):
        group.end()
    return http


def _profiles(given: Fields) -> Sequence[ProfilePath]:
    """Returns Go's profiles as they are changed here, and those with other names."""
    profiles = []
    known = {profile.name: profile for profile in GO_PROFILES}
    for name in [*known, *(name for name in given.names() if name not in known)]:
        one = given.group(name)
        path = one.text("path", known[name].path if name in known else "")
        delta = one.flag("delta", name in known and known[name].delta)
        if not path.startswith("/"):
            raise SettingError(f"{one.where}: path: expected /PATH, got {shown(path)}")
        if one.flag("enabled", True):
            profiles.append(ProfilePath(name, path, delta))
        one.end()
    given.end()
    return tuple(profiles)


def _group(fields: Fields) -> TargetGroup:
    targets = fields.texts("targets")
    for target in targets:
        if not _ADDRESS.fullmatch(target):
            raise SettingError(f"{fields.where}: targets: expected HOST:PORT or HOST, got {shown(target)}")
    labels = fields.group("labels")
    pairs = tuple((name, labels.text(name)) for name in labels.names())
    for name, _ in pairs:
        if not is_name(name):
            raise SettingError(f"{fields.where}: {name!r} is no label name")
    fields.end()
    return TargetGroup(tuple(targets), pairs)


def _files(fields: Fields) -> list[str]:
    files = fields.texts("files")
    fields.take("refresh_interval")  # files are read every 30 s
    fields.end()
    return files


def _url(fields: Fields) -> TargetsUrl:
    url = fields.text("url")
    if not _URL.fullmatch(url):
        raise SettingError(f"{fields.where}: url: expected http(s)://HOST/PATH without a password, got {shown(url)}")
    fields.take("refresh_interval")  # asked every 30 s
    found = TargetsUrl(url, _http(fields))
    fields.end()
    return found


def _dns(fields: Fields) -> list[DnsName]:
    names, port, kind = fields.texts("names"), fields.take("port"), fields.text("type")
    fields.take("refresh_interval")
    fields.end()
    if kind == SRV or (not kind and port is None):  # Prometheus's default
        return [DnsName(name, SRV) for name in names]
    if kind not in ("", "A", "AAAA"):
        raise SettingError(f"{fields.where}: type: expected SRV, A or AAAA, got {shown(kind)}")
    if not isinstance(port, int) or not 0 < port < 2**16:
        raise SettingError(f"{fields.where}: port: expected a port of the addresses, got {shown(port)}")
    return [DnsName(name, kind, port) for name in names]


def _seconds(fields: Fields, name: str, default: float) -> float:
    text = fields.text(name)
    match = _DURATION.fullmatch(text)
    if match is None:
        raise SettingError(f"{fields.where}: {name}: expected a duration such as 15s or 1m, got {shown(text)}")
    parts = zip(match.groups(), _UNITS_S, strict=True)
    seconds = sum(int(number) * unit for number, unit in parts if number) if text else default
    if not 0.1 <= seconds <= 86_400:
        raise SettingError(f"{fields.where}: {name}: expected 100ms to 24h, got {text}")
    return seconds
