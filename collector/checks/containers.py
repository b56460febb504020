"""Where labels of containers and pods come from."""

from pathlib import Path

from collector.checks.row import Row, limited, missing, ok
from collector.settings import CollectorSettings
from icestream.settings import SettingError


def cgroups(mounts: Path = Path("/proc/self/mounts")) -> Row:
    """Processes tell their cgroup themselves (/proc/PID/cgroup): mounted or not says what there is."""
    try:
        kinds = {line.split()[2] for line in mounts.read_text().splitlines() if len(line.split()) > 2}
    except OSError:
        kinds = set()
    if not Path("/proc/self/cgroup").exists():
        return limited("cgroups", "the kernel has none: no labels of containers, pods and units")
    version = {
        (True, False): "version 2",
        (False, True): "version 1",
        (True, True): "versions 1 and 2",
        (False, False): "none is mounted",
    }["cgroup2" in kinds, "cgroup" in kinds]
    return ok("cgroups", f"{version}: processes tell their container, pod and unit")


def labels(settings: CollectorSettings) -> Row:
    """Rules and sources as they are configured."""
    from collector.labels.label_config import label_config

    try:
        label_config(settings)
    except (SettingError, OSError) as error:
        return missing("labels", str(error), "correct the setting", needed=True)
    return ok("labels", f"rules of {settings.relabel}" if settings.relabel else "the usual ones")


def kubernetes(settings: CollectorSettings) -> Row:
    """Whether the kubelet or the API server tells of this node's pods, where it is to be asked."""
    thing = "Kubernetes"
    if settings.kubernetes == "off":
        return ok(thing, "not asked for; pods have the names that their container runtime gives them")
    from collector.labels.kubernetes import KubernetesError, fetch
    from collector.labels.label_config import label_config

    try:
        configured = label_config(settings).pods
        pods = fetch(configured.source) if configured else {}
    except (KubernetesError, SettingError) as error:
        return limited(thing, f"pods stay without their names: {error}", "see --kubernetes and docs/labels.md")
    return ok(thing, f"tells of {len(pods)} pods of this node")
