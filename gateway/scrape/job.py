"""What a scrape job says: which targets, which of their profiles, how often, and how they are asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from icestream.relabel import Rule


@dataclass(frozen=True)
class ProfilePath:
    """One profile of every target."""

    name: str
    path: str
    delta: bool = False
    """Asked with `?seconds=`: the target answers when they are over, with what happened in them."""


GO_PROFILES = (
    ProfilePath("process_cpu", "/debug/pprof/profile", delta=True),
    ProfilePath("memory", "/debug/pprof/allocs"),
    ProfilePath("goroutine", "/debug/pprof/goroutine"),
    ProfilePath("mutex", "/debug/pprof/mutex"),
    ProfilePath("block", "/debug/pprof/block"),
)
"""What a job scrapes that says nothing else."""
SRV = "SRV"


@dataclass(frozen=True)
class TargetGroup:
    """Addresses, HOST:PORT or HOST (then the port of the scheme), with the labels that they share."""

    targets: tuple[str, ...]
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Http:
    """With what a server is asked. Files are read for every request, so secrets may change."""

    follow_redirects: bool = True
    authorization: tuple[str, str] = ("", "")  # type and credentials
    credentials_file: str = ""
    basic: tuple[str, str] = ("", "")  # user and password
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
    profiles: Sequence[ProfilePath] = GO_PROFILES
    rules: Sequence[Rule] = ()
    scheme: str = "http"
    path_prefix: str = ""
    http: Http = field(default_factory=Http)

    @property
    def seconds(self) -> int:
        """How long delta profiles are."""
        return max(1, int(self.interval_s))


def labels_of_group(job: ScrapeJob, address: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Returns the labels of a target before relabeling."""
    return {"job": job.name, "__scheme__": job.scheme, **labels, "__address__": address}
