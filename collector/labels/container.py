"""Finds the names of containers in the files that their runtimes keep on this host.

Docker's config.v2.json, the bundle's config.json of containerd and CRI-O (its annotations, OCI runtime specification),
and containers.json of containers/storage (Podman). No runtime documents these paths, but they are stable. Where Docker
keeps its files, its mounts tell (collector/labels/docker_folder.py).
If a file is missing or not as expected, the container has no name. Paths start at the root of process 1, so they also
work from within a container in the host's PID namespace.
"""

import json
import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector.labels.cgroup import Cgroup
from collector.labels.docker_folder import docker_folder
from collector.labels.text import clean
from collector.processes.regular_file import open_in_root

MAX_CONTAINERS = 4096
_OF_PROCESS_1 = Path("/proc/1/root")
_MOST_LOOKS = 10
"""For the name of a container, each for another process in it."""
_MAX_FILE = 2 << 20
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")
_STORAGE = "var/lib/containers/storage/overlay-containers"


@dataclass(frozen=True)
class Container:
    """What a runtime says about a container; "" for fields that it does not have."""

    name: str = ""
    service: str = ""  # of Docker Compose
    image: str = ""
    pod: str = ""
    namespace: str = ""
    pod_uid: str = ""


class Containers:
    """Reads the files of each container once. `root` is the root of the host's files; by default that of process 1, or
    this process's if it cannot be looked at. For any thread."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = root or (_OF_PROCESS_1 if os.access(_OF_PROCESS_1 / "proc", os.F_OK) else Path("/"))
        self._known: dict[str, Container] = {}
        self._looks: dict[str, int] = {}
        """How often the others were looked for in vain: what starts a container does not have its mounts yet."""
        self._lock = threading.Lock()

    def find(self, group: Cgroup, pid: int = 0) -> Container:
        """Returns the container of a control group; one without a name if it cannot be found. `pid`: of a process in
        it, if there is one."""
        if not _PLAIN.fullmatch(group.container_id):
            return Container()
        with self._lock:
            container = self._known.get(group.container_id)
            if container is None:
                container = next(self._look(group, pid), Container())
                looks = self._looks.pop(group.container_id, 0) + 1
                if container.name or looks == _MOST_LOOKS:
                    _put(self._known, group.container_id, container)
                else:
                    _put(self._looks, group.container_id, looks)
            return container

    def _look(self, group: Cgroup, pid: int) -> Iterator[Container]:
        container_id = group.container_id
        if group.runtime in ("lxc", "systemd-nspawn"):
            yield Container(name=clean(container_id))
        if group.runtime in ("docker", ""):
            mounted = docker_folder(pid, container_id) if pid else None
            for folder in (mounted, f"/var/lib/docker/containers/{container_id}"):
                described = self._json(f"{folder[1:]}/config.v2.json", of_root=folder == mounted) if folder else None
                if _get(described, "ID") == container_id:
                    yield _docker(described)
        if group.runtime in ("containerd", ""):
            tasks = "run/containerd/io.containerd.runtime.v2.task"
            for namespace in ("k8s.io", *_names(self._root / tasks)):
                if bundle := self._json(f"{tasks}/{namespace}/{container_id}/config.json"):
                    yield _bundle(bundle)
        if group.runtime in ("cri-o", "podman", ""):
            container = _bundle(self._json(f"{_STORAGE}/{container_id}/userdata/config.json"))
            if container.name:
                yield container
            for name in _stored(self._json(f"{_STORAGE}/containers.json"), container_id):
                yield Container(name=name)

    def _json(self, path: str, of_root: bool = False) -> Any:
        """Returns None if there is no such regular file, or if it is too large or not JSON. `of_root`: or if it is not
        root's."""
        try:
            accept = (lambda status: status.st_uid == 0) if of_root else None
            with open(open_in_root(str(self._root), path, accept, follow=False), "rb") as file:
                content = file.read(_MAX_FILE + 1)
            return json.loads(content) if len(content) <= _MAX_FILE else None
        except (OSError, ValueError, RecursionError):
            return None


def _put(values: dict[str, Any], container_id: str, value: Any) -> None:
    """Keeps a value; of too many, the oldest goes."""
    if len(values) >= MAX_CONTAINERS:
        del values[next(iter(values))]
    values[container_id] = value


def _docker(config: Any) -> Container:
    described = _get(config, "Config")
    return Container(
        name=_string(config, "Name").lstrip("/"),
        service=_string(_get(described, "Labels"), "com.docker.compose.service"),
        image=_string(described, "Image"),
    )


def _bundle(config: Any) -> Container:
    """Reads the annotations of containerd's CRI plugin, of CRI-O, and of nerdctl."""
    notes = _get(config, "annotations")

    def first(*names: str) -> str:
        return next((text for name in names if (text := _string(notes, name))), "")

    return Container(
        name=first("io.kubernetes.cri.container-name", "io.kubernetes.container.name", "nerdctl/name"),
        image=first("io.kubernetes.cri.image-name", "io.kubernetes.cri-o.ImageName"),
        pod=first("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"),
        namespace=first("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"),
        pod_uid=first("io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid"),
    )


def _stored(containers: Any, container_id: str) -> Iterator[str]:
    for container in containers if isinstance(containers, list) else ():
        names = _get(container, "names")
        if _get(container, "id") == container_id and isinstance(names, list) and names:
            yield clean(str(names[0]))


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))[:64]
    except OSError:
        return []


def _get(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _string(value: Any, key: str) -> str:
    text = _get(value, key)
    return clean(text) if isinstance(text, str) else ""
