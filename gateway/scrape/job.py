"""What a scrape job says: which targets, which of their profiles, how often, and how they are asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gateway.profile_types import ValueType
from icestream.labels.relabel import Rule


@dataclass(frozen=True)
class ProfilePath:
    """One profile of every target."""

    name: str
    path: str
    delta: bool = False
    """Asked with `?seconds=`: the target answers when they are over, with what happened in them."""
    kept_types: tuple[ValueType, ...] = ()
    """Sample types whose values are taken; none: all are."""


GO_PROFILES = (
    ProfilePath("process_cpu", "/debug/pprof/profile", delta=True),
    ProfilePath("memory", "/debug/pprof/allocs"),
    ProfilePath("goroutine", "/debug/pprof/goroutine"),
    ProfilePath("mutex", "/debug/pprof/mutex"),
    ProfilePath("block", "/debug/pprof/block"),
)
"""What a job scrapes by default."""
SRV = "SRV"
REFRESH_S = 30.0
SECONDS = "seconds"
"""The parameter that profiles with `delta` are asked with."""
PARAMETER = "__param_"
"""The prefix of labels of targets that are parameters of the query string, as in Prometheus."""


@dataclass(frozen=True)
class TargetGroup:
    """Addresses, HOST:PORT or HOST (then the port of the scheme), with the labels that they share."""

    targets: tuple[str, ...]
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class RequestHeader:
    """A header of a request. If it is a file, the content is the value."""

    name: str
    value: str
    is_file: bool = False


@dataclass(frozen=True)
class Http:
    """How to ask a server. Files are read for every request, so secrets may change."""

    follow_redirects: bool = True
    proxy: str = ""  # URL
    headers: tuple[RequestHeader, ...] = ()
    authorization_type: str = "Bearer"
    credentials: str = ""
    credentials_file: str = ""
    username: str = ""
    password: str = ""
    password_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True
    server_name: str = ""


@dataclass(frozen=True)
class TargetsUrl:
    """Where a server lists groups of targets."""

    url: str
    http: Http = field(default_factory=Http)

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True)
class DnsName:
    """A name whose addresses are targets at one port, or whose service records are targets."""

    name: str
    type: str  # "A", "AAAA", "" (both) or SRV
    port: int = 0  # of addresses

    def __str__(self) -> str:
        return f"{self.name} (SRV)" if self.type == SRV else f"{self.name}:{self.port}"


@dataclass(frozen=True)
class ApiServer:
    """Where a Kubernetes API server is, and how it is asked."""

    url: str
    http: Http = field(default_factory=Http)


@dataclass(frozen=True)
class KubernetesSource:
    """Which objects of a Kubernetes cluster are targets."""

    role: str
    server: ApiServer
    namespaces: tuple[str, ...] = ()  # none: all
    selectors: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    """Parameters of the API for kinds of objects."""

    def __str__(self) -> str:
        return f"{self.server.url} ({self.role})"


@dataclass(frozen=True)
class ScrapeJob:
    name: str
    interval_s: float = 15.0
    timeout_s: float = 10.0
    """Beside the seconds that a delta profile takes."""
    groups: Sequence[TargetGroup] = ()
    files: Sequence[str] = ()
    """Patterns of files with groups of targets."""
    urls: Sequence[TargetsUrl] = ()
    dns: Sequence[DnsName] = ()
    kubernetes: Sequence[KubernetesSource] = ()
    profiles: Sequence[ProfilePath] = GO_PROFILES
    rules: Sequence[Rule] = ()
    scheme: str = "http"
    path_prefix: str = ""
    http: Http = field(default_factory=Http)
    parameters: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The parameters of the query string, each with its values."""
    body_size_limit: int = 0
    """Bytes of a profile after it was decompressed, 0: as the settings say."""
    external_labels: tuple[tuple[str, str], ...] = ()
    """Labels of targets that have none of the same name."""
    refresh_s: float = REFRESH_S
    """How often the files, servers and names are asked."""

    @property
    def seconds(self) -> int:
        """How long delta profiles are."""
        return max(1, int(self.interval_s))


def labels_of_group(job: ScrapeJob, address: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Returns the labels of a target before relabeling."""
    parameters = {f"{PARAMETER}{name}": values[0] for name, values in job.parameters if values}
    return {"job": job.name, "__scheme__": job.scheme, **parameters, **labels, "__address__": address}


def parameters_of(job: ScrapeJob, labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns the query string of a target, whose labels after relabeling have the first value of each parameter."""
    given = dict(job.parameters)
    for label, value in labels.items():
        if label.startswith(PARAMETER):
            name = label.removeprefix(PARAMETER)
            given[name] = (value, *given.get(name, ())[1:])
    return tuple((name, value) for name in sorted(given) for value in given[name] if name != SECONDS)
