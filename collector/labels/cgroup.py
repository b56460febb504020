"""Reads the container, the Kubernetes pod and the systemd unit of a process from /proc/PID/cgroup, see cgroups(7).

How container runtimes name their groups is documented only in their sources. tests/collector/labels/test_cgroup.py has
a line of each."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

_ID = "[0-9a-f]{64}"
_SCOPE = re.compile(rf"(?:(?P<prefix>[a-z][a-z0-9.-]*?)-)?(?P<id>{_ID})(?:\.scope|\.service)?")
_COLON = re.compile(rf".*\.slice:(?P<prefix>[a-z0-9-]+):(?P<id>{_ID})")  # one cgroup driver with the path of another
_POD = re.compile(
    r"(?:.*-)?pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?::.*)?"
)
_LXC = re.compile(r"lxc\.payload\.(?P<name>[^/]+)|lxc\.payload")
_MACHINE = re.compile(r"systemd-nspawn@(?P<instance>.+)\.service|machine-(?P<machine>(?!qemu).+)\.scope")
_TASK = re.compile(r"[0-9a-f]{32}-[0-9]{4,20}")  # Amazon ECS on Fargate
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})")
_MANAGER_OF_USER = re.compile(r"user@.*\.service")  # the user makes the groups below it, and names them at will
_UNIT = re.compile(r".+\.(?:service|scope)")
_RUNTIMES = {
    "docker": "docker",
    "cri-containerd": "containerd",
    "nerdctl": "containerd",
    "crio": "cri-o",
    "libpod": "podman",
}
_PARENTS = {"docker": "docker", "libpod_parent": "podman", "actions_job": "docker"}
_NAMED_BY_PARENT = {"lxc": "lxc", "garden": "garden"}
_MAX_BYTES = 64 << 10


@dataclass(frozen=True)
class Cgroup:
    """Facts from the path of a process's control group; "" for unknown ones."""

    path: str = ""  # without what is common to all: "" for the root
    container_id: str = ""
    runtime: str = ""  # docker, containerd, cri-o, podman, lxc, systemd-nspawn or garden
    pod_uid: str = ""
    unit: str = ""  # the innermost .service or .scope; of a container only what runs inside it
    slice: str = ""  # the innermost .slice


@dataclass(frozen=True)
class _Container:
    part: int  # of the path
    id: str
    runtime: str


def read_cgroup(folder: str) -> Cgroup:
    """`folder`: see folder_of. Returns an empty Cgroup if the process is gone."""
    try:
        with open(f"{folder}/cgroup", "rb") as file:
            return parse_cgroup(file.read(_MAX_BYTES).decode("utf-8", "replace"))
    except OSError:
        return Cgroup()


def parse_cgroup(text: str) -> Cgroup:
    """Returns the first group of any hierarchy that is in a container or a pod. If there is none, prefers the group of
    version 2, then that of systemd."""
    hierarchies = [line.split(":", 2)[1:] for line in text.splitlines() if line.count(":") >= 2]
    order = {"": 0, "name=systemd": 1}
    paths = [path for name, path in sorted(hierarchies, key=lambda h: order.get(h[0], 2)) if path.strip("/.")]
    groups = [_parse(path) for path in dict.fromkeys(paths)]
    return next((one for one in groups if one.container_id), next((one for one in groups if one.pod_uid), None)) or (
        groups[0] if groups else Cgroup()
    )


def _parse(path: str) -> Cgroup:
    parts = [part for part in path.removesuffix(" (deleted)").split("/") if part not in ("", "..")]
    believed = list(takewhile(lambda part: not _MANAGER_OF_USER.fullmatch(part), parts))
    container = _container(believed)
    pods = [match["uid"].replace("_", "-") for part in believed for match in [_POD.fullmatch(part)] if match]
    inside = parts[container.part + 1 :] if container else parts
    slices = [part for part in parts if part.endswith(".slice")]
    return Cgroup(
        path="/" + "/".join(parts),
        container_id=container.id if container else "",
        runtime=container.runtime if container else "",
        pod_uid=pods[-1] if pods else "",
        unit=next((part for part in reversed(inside) if _UNIT.fullmatch(part) and not _of_container(part)), ""),
        slice=slices[-1] if slices else "",
    )


def _container(parts: list[str]) -> _Container | None:
    """Returns the innermost container: a node of a cluster may be a container itself."""
    return next((container for part in reversed(range(len(parts))) for container in _containers(parts, part)), None)


def _containers(parts: list[str], at: int) -> Iterator[_Container]:
    part, parent = parts[at], parts[at - 1] if at else ""
    if match := _COLON.fullmatch(part) or _SCOPE.fullmatch(part):
        prefix = match["prefix"] or ""
        if not prefix.endswith("conmon"):  # conmon watches a container from outside
            yield _Container(at, match["id"], _RUNTIMES.get(prefix) or _PARENTS.get(parent, ""))
    elif match := _LXC.fullmatch(part):
        yield _Container(at, match["name"] or (parts[at + 1] if at + 1 < len(parts) else "") or "lxc", "lxc")
    elif match := _MACHINE.fullmatch(part):
        name = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), match["instance"] or match["machine"])
        yield _Container(at, name, "systemd-nspawn")
    elif parent in _NAMED_BY_PARENT and not part.startswith("lxc."):
        yield _Container(at, part, _NAMED_BY_PARENT[parent])
    elif _TASK.fullmatch(part) and "ecs" in parts:
        yield _Container(at, part, "")


def _of_container(unit: str) -> bool:
    return "conmon-" not in unit and bool(_SCOPE.fullmatch(unit))
