"""Settings of the collector."""

import dataclasses
import socket
from pathlib import Path

from icestream.kafka.producer_settings import ProducerSettings
from icestream.settings import KafkaSettings, SettingError, setting

_SPOOL = Path("/var/lib/icestream/spool")
_DEBUGINFOD = Path("/var/cache/icestream/debuginfod")
_TABLES = Path("/var/cache/icestream/unwind")
_SOCKET = Path("/run/icestream/activity.sock")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectorSettings(ProducerSettings):
    """What `icestream collect` takes."""

    frequency: int = setting(19, "samples per second and CPU")
    cpu_budget: float = setting(
        1.0, "CPU that the collector may take before it does less, in percent of all CPUs of the host; 0: no limit"
    )
    lowest_frequency: int = setting(
        0,
        "samples per second and CPU: at fewer, only the cost of the samples themselves lowers the frequency; 0: half of"
        " the frequency, or 10 if that is more",
    )
    share: float = setting(1.0, "share of the hosts that sample at any one time, in turns: 0.1 for a tenth")
    share_interval: float = setting(60.0, "seconds that a turn lasts")
    off_cpu: float = setting(
        0.0, "share of the threads' waits to follow for the off-CPU profile: 1 for all, 0 for none"
    )
    off_cpu_threshold_ms: float = setting(1.0, "milliseconds that a wait must last to be in the off-CPU profile")
    interval: float = setting(5.0, "seconds from batch to batch")
    settle: float = setting(0.3, "seconds that a batch waits for the activity that belongs to it")
    loader: str = setting("auto", "what loads the eBPF programs: libbpf (kernel with BTF), bcc (compiles), or auto")
    host_id: str = setting("", "ID of this host in Kafka; by default /etc/machine-id, else the host's name")
    host: str = setting("", "value of the label `host`; by default the host's name")
    spool: Path = setting(_SPOOL, "folder for batches that Kafka has not taken yet")
    spool_limit_mb: int = setting(512, "size of the spool in MB, above which the oldest batches are dropped")
    unwind_cache: Path = setting(_TABLES, "folder for unwinding tables, which are made once for each file")
    unwind_tables_mb: int = setting(32, "kernel memory for unwinding tables in MB: about 1 MB for 10 MB of code")
    activity_socket: Path = setting(_SOCKET, "socket where applications report activity")
    symbol_store: str = setting("", "folder or URI where symbol files go; by default they go through Kafka")
    environment_labels: str = setting(
        "",
        "environment variables of processes that become labels, as VERSION,DEPLOY_ENV; the labels are in lower case",
    )
    relabel: str = setting("", "file of relabeling rules in YAML, see docs/labels.md")
    kubernetes: str = setting(
        "off", "source of pods' names: kubelet, api, or off (only the files of the container runtime)"
    )
    kubernetes_url: str = setting(
        "", "URL of the kubelet, by default https://127.0.0.1:10250, or of the API server, by default this cluster's"
    )
    kubernetes_node: str = setting("", "name of this node in the API server; by default the host's name")
    kubernetes_token: str = setting("", "file of the bearer token; by default this pod's service account's")
    kubernetes_ca: str = setting("", "file of the CA certificates to trust, PEM; by default the service account's")
    kubernetes_verify: bool = setting(True, "check the certificate of the kubelet or the API server")
    debuginfod_urls: str = setting(
        "", "debuginfod servers to ask for debug files, separated by spaces; env: those of DEBUGINFOD_URLS; empty: none"
    )
    debuginfod_cache: Path = setting(_DEBUGINFOD, "folder for debug files from debuginfod")
    debuginfod_cache_limit_mb: int = setting(
        2048, "largest size of that folder in MB; a larger debug file is not downloaded"
    )
    metrics_listen: str = setting("127.0.0.1:4062", "HOST:PORT of /metrics, /healthz and /readyz; empty: none")

    def __post_init__(self) -> None:
        for name, low, high in (
            ("frequency", 1, 10_000),
            ("cpu_budget", 0, 100),
            ("lowest_frequency", 0, 1_000_000),
            ("share", 0, 1),
            ("share_interval", 1, 86_400),
            ("off_cpu", 0, 1),
            ("off_cpu_threshold_ms", 0, 86_400_000),
            ("unwind_tables_mb", 1, 1024),
            ("interval", 0.1, 600),
            ("most_operations", 1, 100_000),
            ("settle", 0, 60),
            ("spool_limit_mb", 1, 1 << 20),
            ("debuginfod_cache_limit_mb", 1, 1 << 20),
        ):
            if not low <= getattr(self, name) <= high:
                raise SettingError(f"{name}: expected {low} to {high}, got {getattr(self, name)}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class UploadSettings(KafkaSettings):
    """What `icestream symbols upload` takes."""

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
