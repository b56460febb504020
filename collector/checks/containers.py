"""Where labels of containers and pods come from."""

from pathlib import Path

from collector.checks.row import CheckRow, limited, missing, ok
from collector.settings import CollectorSettings
from icestream.settings import SettingError


def cgroups(mounts: Path = Path("/proc/self/mounts")) -> CheckRow:
    """Which versions are mounted. The cgroup of a process is in /proc/PID/cgroup, whether mounted or not."""
    try:
        kinds = {line.split()[2] for line in mounts.read_text().splitlines() if len(line.split()) > 2}
    except OSError:
        kinds = set()
    if not Path("/proc/self/cgroup").exists():
        return limited("cgroups", "the kernel has none: there are no labels for containers, pods and units")
    version = {
        (True, False): "version 2",
        (False, True): "version 1",
        (True, True): "versions 1 and 2",
        (False, False): "none is mounted",
    }["cgroup2" in kinds, "cgroup" in kinds]
    return ok("cgroups", f"{version}: processes have labels for container, pod and unit")


def labels(settings: CollectorSettings) -> CheckRow:
    """Whether the settings and rules of labels can be used."""
    from collector.labels.label_config import label_config

    try:
        label_config(settings)
    except (SettingError, OSError) as error:
        return missing("labels", str(error), "correct the setting", needed=True)
    return ok("labels", f"rules of {settings.relabel}" if settings.relabel else "the default ones")


def kubernetes(settings: CollectorSettings) -> CheckRow:
    """Whether the kubelet or the API server names this node's pods, if the settings want it."""
    thing = "Kubernetes"
    if settings.kubernetes == "off":
        return ok(thing, "off; pods have the names that the container runtime knows")
    from collector.labels.kubernetes import KubernetesError, fetch
    from collector.labels.label_config import label_config

    try:
        configured = label_config(settings).pods
        pods = fetch(configured.source) if configured else {}
    except (KubernetesError, SettingError) as error:
        return limited(thing, f"pods have no names: {error}", "see --kubernetes and docs/labels.md")
    return ok(thing, f"{len(pods)} pods run on this node")
