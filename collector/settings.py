"""Settings of the collector."""

import dataclasses
import socket
from pathlib import Path

from icestream.settings import KafkaSettings, SettingError, setting
from icestream.topics import CLICKHOUSE_GROUP, STREAMS_GROUP

_SPOOL = Path("/var/lib/icestream/spool")
_DEBUGINFOD = Path("/var/cache/icestream/debuginfod")
_TABLES = Path("/var/cache/icestream/unwind")
_SOCKET = Path("/run/icestream/activity.sock")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectorSettings(KafkaSettings):
    """What `icestream collect` can be told."""

    frequency: int = setting(19, "samples per second and CPU")
    cpu_budget: float = setting(
        2.0, "CPU the collector may take, in per cent of one CPU, before it samples less often; 0: any"
    )
    share: float = setting(1.0, "share of the hosts that sample at a time, by turns: 0.1 for every tenth")
    share_interval: float = setting(60.0, "seconds of a turn")
    off_cpu: float = setting(
        0.0, "share of the waits of threads to follow for an off-CPU profile: 1 for all, 0 for none"
    )
    off_cpu_threshold_ms: float = setting(1.0, "milliseconds from which on a wait is in the off-CPU profile")
    interval: float = setting(5.0, "seconds from batch to batch")
    settle: float = setting(0.3, "seconds that a batch waits for the activity that belongs to it")
    loader: str = setting("auto", "what loads the eBPF programs: libbpf (kernel with BTF), bcc (compiles), or auto")
    host_id: str = setting("", "this host in Kafka; by default /etc/machine-id, else the host's name")
    host: str = setting("", "the label `host`; by default the host's name")
    spool: Path = setting(_SPOOL, "directory of batches that Kafka does not have yet")
    spool_limit_mb: int = setting(512, "size of the spool, beyond which the oldest batches are dropped")
    unwind_cache: Path = setting(_TABLES, "directory of unwinding tables, which are made once for each file")
    unwind_tables_mb: int = setting(32, "memory of the kernel for unwinding tables: about 1 MB for 10 MB of code")
    activity_socket: Path = setting(_SOCKET, "socket where applications report activity")
    symbol_store: str = setting("", "folder or URI where symbol files go; by default they go through Kafka")
    environment_labels: str = setting(
        "",
        "variables of processes' environments that become labels, VERSION,DEPLOY_ENV: named in lower case",
    )
    relabel: str = setting("", "file of relabeling rules, YAML: see labels.md")
    kubernetes: str = setting("off", "who tells the names of pods: off (only their container runtime), kubelet or api")
    kubernetes_url: str = setting(
        "", "URL of the kubelet, by default https://127.0.0.1:10250, or of the API server, by default this cluster's"
    )
    kubernetes_node: str = setting("", "name of this node for the API server; by default the host's name")
    kubernetes_token: str = setting("", "file of the bearer token; by default this pod's service account's")
    kubernetes_ca: str = setting("", "file of the CA certificates to trust, PEM; by default the service account's")
    kubernetes_verify: bool = setting(True, "check the certificate of the kubelet or the API server")
    debuginfod_urls: str = setting(
        "", "debuginfod servers to ask for debug files, with spaces between; env: those of DEBUGINFOD_URLS; empty: none"
    )
    debuginfod_cache: Path = setting(_DEBUGINFOD, "directory of the debug files that came from debuginfod")
    debuginfod_cache_limit_mb: int = setting(2048, "size of that directory, and so of the largest debug file taken")
    metrics_listen: str = setting("127.0.0.1:4062", "HOST:PORT of /metrics, /healthz and /readyz; empty: none")
    raw_readers: str = setting(STREAMS_GROUP, "in-process broker: groups that must keep up with icestream.raw")
    activity_readers: str = setting(
        f"{STREAMS_GROUP},{CLICKHOUSE_GROUP}", "in-process broker: groups that must keep up with icestream.activity"
    )

    def __post_init__(self) -> None:
        for name, low, high in (
            ("cpu_budget", 0, 100_000),
            ("share", 0, 1),
            ("share_interval", 1, 86_400),
            ("off_cpu", 0, 1),
            ("off_cpu_threshold_ms", 0, 86_400_000),
            ("unwind_tables_mb", 1, 1024),
            ("interval", 0.1, 600),
            ("settle", 0, 60),
            ("spool_limit_mb", 1, 1 << 20),
            ("debuginfod_cache_limit_mb", 1, 1 << 20),
        ):
            if not low <= getattr(self, name) <= high:
                raise SettingError(f"{name}: expected {low} to {high}, got {getattr(self, name)}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class UploadSettings(KafkaSettings):
    """What `icestream symbols upload` can be told."""

    symbol_store: str = setting("", "folder or URI where symbol files go; by default they go through Kafka")


def host_id(settings: CollectorSettings) -> str:
    """The ID of this host: as set, else of the machine, else its name."""
    if settings.host_id:
        return settings.host_id
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        machine = ""
    return machine or socket.gethostname()


def host_name(settings: CollectorSettings) -> str:
    """The label `host`."""
    return settings.host or socket.gethostname()
