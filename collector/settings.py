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

    frequency: int = setting(19, "take so many samples per second and CPU")
    cpu_budget: float = setting(
        1.0, "do less where the collector would take more CPU, in percent of all CPUs of the host; 0: no limit"
    )
    lowest_frequency: int = setting(
        0,
        "keep so many samples per second and CPU, unless the samples themselves cost too much; 0: half of "
        "the frequency, or 10 if that is more",
    )
    share: float = setting(1.0, "sample on this share of the hosts at any one time, in turns: 0.1 for a tenth")
    share_interval: float = setting(60.0, "let a turn last so many seconds")
    off_cpu: float = setting(
        0.0, "follow this share of the threads' waits for the off-CPU profile: 1 for all, 0 for none"
    )
    off_cpu_threshold_ms: float = setting(
        1.0, "send shorter times off CPU, in milliseconds, by chance in proportion to their length"
    )
    interval: float = setting(5.0, "send a batch every so many seconds")
    settle: float = setting(0.3, "wait so many seconds for the activity that belongs to a batch")
    loader: str = setting("auto", "load the eBPF programs with libbpf (kernel with BTF), bcc (compiles), or auto")
    host_id: str = setting("", "use this ID of the host in Kafka; by default /etc/machine-id, else the host's name")
    host: str = setting("", "give the label `host` this value; by default the host's name")
    spool: Path = setting(_SPOOL, "keep batches that Kafka has not taken yet in this folder")
    spool_limit_mb: int = setting(512, "drop the oldest batches when the spool is larger than so many MB")
    unwind_cache: Path = setting(_TABLES, "keep unwinding tables, which are made once for each file, in this folder")
    unwind_tables_mb: int = setting(
        32, "use at most so many MB of kernel memory for unwinding tables: about 1 MB for 10 MB of code"
    )
    activity_socket: Path = setting(_SOCKET, "receive activity of applications at this socket")
    symbol_store: str = setting("", "put symbol files into this folder or URI; by default they go through Kafka")
    environment_labels: str = setting(
        "",
        "make these environment variables of processes labels, as VERSION,DEPLOY_ENV; the labels are in lower case",
    )
    relabel: str = setting("", "apply the relabeling rules in this YAML file, see docs/labels.md")
    kubernetes: str = setting(
        "off", "read pods' names from kubelet, api, or off (only the files of the container runtime)"
    )
    kubernetes_url: str = setting(
        "",
        "read from this URL of the kubelet, by default https://127.0.0.1:10250, or of the API server, by "
        "default this cluster's",
    )
    kubernetes_node: str = setting("", "ask the API server for this node; by default the host's name")
    kubernetes_token: str = setting("", "read the bearer token from this file; by default this pod's service account's")
    kubernetes_ca: str = setting("", "trust the CA certificates in this file, PEM; by default the service account's")
    kubernetes_verify: bool = setting(True, "check the certificate of the kubelet or the API server")
    debuginfod_urls: str = setting(
        "",
        "ask these debuginfod servers for debug files, separated by spaces; env: those of DEBUGINFOD_URLS; empty: none",
    )
    debuginfod_cache: Path = setting(_DEBUGINFOD, "keep debug files from debuginfod in this folder")
    debuginfod_cache_limit_mb: int = setting(
        2048, "keep that folder below so many MB; a larger debug file is not downloaded"
    )
    metrics_listen: str = setting(
        "127.0.0.1:4062", "serve /metrics, /healthz and /readyz at this HOST:PORT; empty: none"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, low, high in (
            ("frequency", 1, 10_000),
            ("cpu_budget", 0, 100),
            ("lowest_frequency", 0, 1_000_000),
            ("share", 0, 1),
            ("share_interval", 1, 86_400),
            ("off_cpu", 0, 1),
            ("off_cpu_threshold_ms", 0, 1_000),
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

    symbol_store: str = setting("", "put symbol files into this folder or URI; by default they go through Kafka")


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
