"""What containers are called, from files as their runtimes keep them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from collector.labels import docker_folder
from collector.labels.cgroup import Cgroup
from collector.labels.container import Container, Containers

ID = "0123456789abcdef" * 4


def put(root: Path, path: str, content: Any) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))


def of(root: Path, runtime: str) -> Container:
    return Containers(root).find(Cgroup(container_id=ID, runtime=runtime))


def test_docker_names_its_containers_and_compose_its_services(tmp_path: Path) -> None:
    labels = {"com.docker.compose.project": "site", "com.docker.compose.service": "web"}
    config = {"ID": ID, "Name": "/site-web-1", "Config": {"Image": "nginx:1.29", "Labels": labels}, "State": {}}
    put(tmp_path, f"var/lib/docker/containers/{ID}/config.v2.json", config)
    expected = Container(name="site-web-1", service="web", image="nginx:1.29")
    assert of(tmp_path, "docker") == expected
    assert of(tmp_path, "") == expected, "the control group may not say the runtime"
    assert of(tmp_path, "podman") == Container()


def in_docker(hostname: str) -> str:
    """The mounts of a process in a container. `hostname`: device and root of the one at /etc/hostname."""
    return (
        "73 49 0:40 / / rw,relatime master:2 - overlay overlay rw,lowerdir=/data/docker/overlay2/l/A\n"
        f"92 73 {hostname} /etc/hostname rw,relatime - ext4 /dev/vda rw\n"
    )


HOST_MOUNTS = (
    "22 1 254:0 / / rw - ext4 /dev/vda rw\n"
    "30 22 254:16 / /mnt/big\\040disk rw - xfs /dev/vdb rw\n"
    "31 22 254:32 /srv /export rw - xfs /dev/vdc rw\n"
)


@pytest.mark.parametrize(
    ("mount", "folder"),
    [
        (f"254:0 /data/docker/containers/{ID}/hostname", f"/data/docker/containers/{ID}"),
        (f"254:16 /docker/containers/{ID}/hostname", f"/mnt/big disk/docker/containers/{ID}"),
        (f"254:32 /srv/docker/containers/{ID}/hostname", f"/export/docker/containers/{ID}"),
        (f"254:32 /srv2/docker/containers/{ID}/hostname", None),
        (f"254:99 /docker/containers/{ID}/hostname", None),
        (f"254:0 /data/docker/containers/{'f' * 64}/hostname", f"/data/docker/containers/{ID}"),  # of one network
        ("254:0 /etc/hostname", None),
    ],
)
def test_the_folder_of_docker_is_where_its_mounts_come_from(
    mount: str, folder: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put(tmp_path, "1/ns/user", "")
    put(tmp_path, "1/mountinfo", HOST_MOUNTS)
    put(tmp_path, "77/mountinfo", in_docker(mount))
    monkeypatch.setattr(docker_folder, "PROC", str(tmp_path))
    assert docker_folder.docker_folder(77, ID) is None  # it has a user namespace of its own
    (tmp_path / "77/ns").mkdir()
    (tmp_path / "77/ns/user").hardlink_to(tmp_path / "1/ns/user")
    assert docker_folder.docker_folder(77, ID) == folder
    assert docker_folder.docker_folder(78, ID) is None


@pytest.mark.skipif(os.getuid() != 0, reason="gives a file to another user")
def test_a_folder_that_a_process_names_is_believed_if_it_is_of_root_and_of_this_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.labels.container.docker_folder", lambda pid, container_id: f"/data/{container_id}")
    file = tmp_path / f"data/{ID}/config.v2.json"

    def name() -> str:
        return Containers(tmp_path).find(Cgroup(container_id=ID, runtime="docker"), 77).name

    put(tmp_path, f"data/{ID}/config.v2.json", {"ID": ID, "Name": "/web"})
    assert name() == "web"
    os.chown(file, 1000, 1000)
    assert name() == ""
    os.chown(file, 0, 0)
    put(tmp_path, f"data/{ID}/config.v2.json", {"ID": "f" * 64, "Name": "/of-another"})
    assert name() == ""


def test_the_bundle_of_containerd_names_container_and_pod(tmp_path: Path) -> None:
    notes = {
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.container-name": "main",
        "io.kubernetes.cri.image-name": "shop:1.4",
        "io.kubernetes.cri.sandbox-name": "shop-7d4f-x2x",
        "io.kubernetes.cri.sandbox-namespace": "prod",
        "io.kubernetes.cri.sandbox-uid": "u",
    }
    put(tmp_path, f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json", {"annotations": notes})
    expected = Container(name="main", image="shop:1.4", pod="shop-7d4f-x2x", namespace="prod", pod_uid="u")
    assert of(tmp_path, "containerd") == expected
    assert of(tmp_path, "") == expected


def test_the_bundle_of_nerdctl_is_found_in_its_namespace(tmp_path: Path) -> None:
    put(tmp_path, "run/containerd/io.containerd.runtime.v2.task/k8s.io/other/config.json", {})
    notes = {"annotations": {"nerdctl/name": "web"}}
    put(tmp_path, f"run/containerd/io.containerd.runtime.v2.task/default/{ID}/config.json", notes)
    assert of(tmp_path, "containerd").name == "web"


def test_the_bundle_of_cri_o_names_container_and_pod(tmp_path: Path) -> None:
    notes = {
        "io.kubernetes.container.name": "main",
        "io.kubernetes.pod.name": "shop-7d4f-x2x",
        "io.kubernetes.pod.namespace": "prod",
        "io.kubernetes.pod.uid": "u",
    }
    storage = "var/lib/containers/storage/overlay-containers"
    put(tmp_path, f"{storage}/{ID}/userdata/config.json", {"annotations": notes})
    assert of(tmp_path, "cri-o") == Container(name="main", pod="shop-7d4f-x2x", namespace="prod", pod_uid="u")


def test_podman_names_containers_of_root(tmp_path: Path) -> None:
    storage = "containers/storage/overlay-containers"
    put(tmp_path, f"var/lib/{storage}/containers.json", [{"id": "x", "names": ["no"]}, {"id": ID, "names": ["web"]}])
    put(tmp_path, f"var/lib/{storage}/{ID}/userdata/config.json", {"annotations": {"io.container.manager": "libpod"}})
    assert of(tmp_path, "podman").name == "web"


def test_lxc_and_nspawn_have_names_for_ids() -> None:
    for runtime in ("lxc", "systemd-nspawn"):
        assert Containers(Path("/nonexistent")).find(Cgroup(container_id="web", runtime=runtime)).name == "web"


@pytest.mark.parametrize(
    "content", ["", "[", "7", "null", '{"Name": 7, "Config": []}', '{"Config": {"Labels": "x"}}', "[" * 100_000, "\0"]
)
def test_files_that_hold_something_else_leave_the_container_without_a_name(tmp_path: Path, content: str) -> None:
    put(tmp_path, f"var/lib/docker/containers/{ID}/config.v2.json", content)
    put(tmp_path, f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json", content)
    put(tmp_path, "var/lib/containers/storage/overlay-containers/containers.json", content)
    assert of(tmp_path, "") == Container()


def test_only_regular_files_of_a_bearable_size_are_read(tmp_path: Path) -> None:
    file = tmp_path / f"var/lib/docker/containers/{ID}/config.v2.json"
    file.parent.mkdir(parents=True)
    os.mkfifo(file)
    assert of(tmp_path, "docker") == Container()
    file.unlink()
    file.symlink_to("/etc/hostname")
    assert of(tmp_path, "docker") == Container()
    file.unlink()
    file.write_text(" " * (2 << 20) + "{}")
    assert of(tmp_path, "docker") == Container()


def test_an_id_is_no_path() -> None:
    containers = Containers()
    for odd in ("..", "../x", "a/b", "", "-", "a" * 300, "a\0"):
        assert containers.find(Cgroup(container_id=odd, runtime="docker")) == Container()
    assert not containers._known


def test_memory_is_bounded_however_many_containers_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.labels.container.MAX_CONTAINERS", 10)
    containers = Containers(tmp_path)
    for i in range(100):
        containers.find(Cgroup(container_id=f"c{i}", runtime="docker"))
        containers.find(Cgroup(container_id=f"d{i}", runtime="lxc"))
    assert (len(containers._known), len(containers._looks)) == (10, 10)


def test_a_container_that_has_no_name_yet_gets_one_from_a_later_process(tmp_path: Path) -> None:
    containers = Containers(tmp_path)
    group = Cgroup(container_id=ID, runtime="docker")
    assert containers.find(group, 1).name == ""  # of what starts the container
    put(tmp_path, f"var/lib/docker/containers/{ID}/config.v2.json", {"ID": ID, "Name": "/web"})
    assert containers.find(group, 1).name == "web"
    without = Cgroup(container_id="f" * 64, runtime="docker")
    for _ in range(20):
        containers.find(without)
    put(tmp_path, f"var/lib/docker/containers/{'f' * 64}/config.v2.json", {"ID": "f" * 64, "Name": "/late"})
    assert containers.find(without).name == ""  # it is not looked for for ever
